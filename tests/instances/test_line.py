"""Whose turn it is, whatever callers come, leave and are served."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.instances.line import Line

Waiter = tuple[str | None, int]
CALLERS = st.sampled_from(["a", "b", "c", None])
JOIN, TAKE, LEAVE, SURPLUS = "join", "take", "leave", "surplus"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(JOIN), CALLERS),
        st.tuples(st.just(TAKE), st.none()),
        st.tuples(st.just(LEAVE), st.integers(0, 99)),
        st.tuples(st.just(SURPLUS), CALLERS),
    ),
    max_size=80,
)


def line_of(*callers: str | None) -> Line[Waiter]:
    line: Line[Waiter] = Line()
    for number, caller in enumerate(callers):
        line.join(caller, (caller, number))
    return line


def taken(line: Line[Waiter]) -> list[Waiter]:
    return [line.take() for _ in range(len(line))]


def test_one_caller_is_served_in_order() -> None:
    assert taken(line_of(None, None, None)) == [(None, 0), (None, 1), (None, 2)]


def test_callers_take_turns() -> None:
    assert taken(line_of("a", "a", "a", "b", "c", "c")) == [
        ("a", 0), ("b", 3), ("c", 4), ("a", 1), ("c", 5), ("a", 2),
    ]  # fmt: skip


def test_who_leaves_gives_the_turn_to_the_next_of_the_same_caller() -> None:
    line = line_of("a", "b", "a")
    assert line.leave("a", ("a", 0))
    assert not line.leave("a", ("a", 0))
    assert not line.leave("nobody", ("a", 2))
    assert taken(line) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("callers", "newest", "goes"),
    [
        # The one caller there is: the newest.
        (("a", "a", "a"), "a", ("a", 2)),
        # Somebody has more: the newest of those.
        (("a", "a", "b"), "b", ("a", 1)),
        (("a", "a", "b", "b", "b", "c"), "c", ("b", 4)),
        # Equals: no change of hands.
        (("a", "a", "b", "b"), "b", ("b", 3)),
        (("a", "b", "c"), "c", ("c", 2)),
    ],
)
def test_who_has_to_go_where_the_line_is_too_long(callers: tuple[str, ...], newest: str, goes: Waiter) -> None:
    assert line_of(*callers).surplus(newest) == goes


def test_nobody_waits_in_an_empty_line() -> None:
    line = line_of()
    assert (line.first(), len(line)) == (None, 0)
    for ask in (line.take, lambda: line.surplus("a")):
        with pytest.raises(KeyError):
            ask()


@given(STEPS)
def test_nobody_waits_for_more_than_one_turn_of_each_other_caller(steps: list[tuple[str, object]]) -> None:
    """The model is one list in the order of joining; `passed` counts, for the first of each caller, those of others
    that were served since it became the first.
    """
    line: Line[Waiter] = Line()
    waiting: list[Waiter] = []
    passed: dict[Waiter, Counter[str | None]] = {}

    def gone(waiter: Waiter) -> None:
        waiting.remove(waiter)
        passed.pop(waiter, None)

    for number, (step, which) in enumerate(steps):
        if step == JOIN:
            waiter: Waiter = (which, number)  # type: ignore[assignment]
            line.join(waiter[0], waiter)
            waiting.append(waiter)
        elif step == TAKE and waiting:
            expected = line.first()
            served = line.take()
            assert served == expected
            assert served == next(each for each in waiting if each[0] == served[0]), "it was not its caller's first"
            gone(served)
            for seen in passed.values():
                seen[served[0]] += 1
        elif step == LEAVE and waiting:
            waiter = waiting[which % len(waiting)]  # type: ignore[operator]
            assert line.leave(waiter[0], waiter)
            gone(waiter)
        elif step == SURPLUS and any(each[0] == which for each in waiting):
            counts = Counter(each[0] for each in waiting)
            goes = line.surplus(which)  # type: ignore[arg-type]
            assert goes == [each for each in waiting if each[0] == goes[0]][-1]
            assert counts[goes[0]] == max(counts.values())
            assert goes[0] == which or counts[goes[0]] > counts[which]  # type: ignore[index]
        assert len(line) == len(waiting)
        for caller in {each[0] for each in waiting}:
            passed.setdefault(next(each for each in waiting if each[0] == caller), Counter())
        assert all(seen[caller] <= 1 for (own, _), seen in passed.items() for caller in seen if caller != own)
    assert sorted(taken(line), key=str) == sorted(waiting, key=str)
