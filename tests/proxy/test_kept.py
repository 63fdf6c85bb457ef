import pytest

from app.proxy.kept import KeptAnswer, KeptStream

EVENT = b"data: " + b"x" * 1000 + b"\n\n"


def fed(kept: KeptAnswer | KeptStream, data: bytes, size: int) -> bytes:
    for start in range(0, len(data), size):
        kept.add(data[start : start + size])
    return kept.joined()


def test_an_answer_is_kept_whole_up_to_the_limit() -> None:
    assert fed(KeptAnswer(6, suffices=False), b"abcdef", 2) == b"abcdef"
    assert fed(KeptAnswer(5, suffices=False), b"abcdef", 2) == b""


def test_a_beginning_that_suffices_is_kept() -> None:
    kept = KeptAnswer(5, suffices=True)
    assert fed(kept, b"abcdefghijkl", 2) == b"abcdef"


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("size", [len(EVENT), 700, 5000])
def test_what_is_kept_of_a_stream_is_bounded(is_long: bool, size: int) -> None:
    kept = KeptStream(last_event_is_long=is_long)
    end = fed(kept, EVENT * 3000, size)
    assert 250 * 1024 < len(end) <= 256 * 1024 + size
    assert not kept.is_whole
    assert kept.beginning(end).startswith(EVENT)
    assert len(kept.beginning(end)) <= 32 * 1024


def test_a_short_stream_begins_where_it_begins() -> None:
    kept = KeptStream()
    end = fed(kept, EVENT, 10)
    assert kept.is_whole
    assert kept.beginning(end) == EVENT


@pytest.mark.parametrize("size", [60_000, 65_536, 262_144])
@pytest.mark.parametrize("before", [EVENT, EVENT * 700])
def test_a_long_last_event_is_kept_whole(size: int, before: bytes) -> None:
    last = b"data: " + b"y" * 3_000_000 + b"\n\n"
    assert fed(KeptStream(last_event_is_long=True), before + last, size).endswith(last)
    assert not fed(KeptStream(), before + last, size).endswith(last)


@pytest.mark.parametrize("size", [60_000, 262_144, 4_000_000])
@pytest.mark.parametrize("pings", [[b":\n\n"] * 3, [b":", b"\n\n", b": x\n", b"\n"], [b":\n\n: y\n\n"]])
def test_comments_after_a_long_last_event_leave_it_whole(size: int, pings: list[bytes]) -> None:
    last = b"data: " + b"y" * 3_000_000 + b"\n\n"
    for is_apart in (True, False):
        kept = KeptStream(last_event_is_long=True)
        fed(kept, EVENT * 700 + last + (b"" if is_apart else b"".join(pings)), size)
        for ping in pings if is_apart else ():
            kept.add(ping)
        assert kept.joined().endswith(last + b"".join(pings))


def test_comments_between_short_events_are_not_kept_for_ever() -> None:
    kept = KeptStream(last_event_is_long=True)
    assert len(fed(kept, (b":\n\n" + EVENT) * 3000, len(EVENT) + 3)) <= 256 * 1024 + len(EVENT) + 3


def test_an_event_over_all_limits_is_cut() -> None:
    kept = KeptStream(last_event_is_long=True)
    assert len(fed(kept, b"data: " + b"y" * 20_000_000, 100_000)) <= 16 * 1024 * 1024 + 100_000
