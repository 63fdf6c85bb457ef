from datetime import UTC, datetime

from app.identifiers import TimeOrderedIds, first_id_at, id_text, id_time, parse_id


def test_ids_rise_also_when_the_clock_steps_back() -> None:
    times = iter([100.0, 100.0, 99.0, 101.0])
    ids = TimeOrderedIds(clock=lambda: next(times))
    given = [ids.next() for _ in range(4)]
    assert given == sorted(set(given))
    assert id_time(given[3]) == datetime.fromtimestamp(101, UTC)


def test_a_time_is_a_range_of_ids() -> None:
    given = TimeOrderedIds(clock=lambda: 1_800_000_000.123).next()
    assert first_id_at(1_800_000_000_123) <= given < first_id_at(1_800_000_000_124)
    assert given < 1 << 63


def test_public_ids_sort_and_come_back() -> None:
    small, large = first_id_at(5), first_id_at(5_000_000_000_000)
    assert id_text(small) < id_text(large)
    assert parse_id(id_text(large)) == large
    for text in ("", "x" * 16, "0" * 15, "F" * 16, "f" * 16, "0x00000000000001"):
        assert parse_id(text) is None
