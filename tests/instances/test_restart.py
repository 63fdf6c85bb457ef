"""The restart policy on histories of endings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.instances.restart import Ending, GiveUp, Hold, Rest, Restart, RestartPolicy, following

POLICY = RestartPolicy()


def crash(ready_seconds: float = 5.0, reason: str = "killed-by-signal-6") -> Ending:
    return Ending(0, reason, ready_seconds)


def failed(reason: str = "bad-model", *, had_neighbour: bool = False) -> Ending:
    return Ending(0, reason, None, had_neighbour=had_neighbour)


STOPPED = Ending(0, "stopped", 100, was_asked=True)


def test_nothing_follows_an_end_that_was_asked_for() -> None:
    assert following([], POLICY) == Rest()
    assert following([crash(), STOPPED], POLICY) == Rest()
    assert following([Ending(0, "stopped", None, was_asked=True)], POLICY) == Rest()


def test_crashes_pause_twice_as_long_each_time_and_are_given_up_after_the_cap() -> None:
    pauses = []
    for count in range(1, POLICY.crashes_most + 1):
        after = following([crash()] * count, POLICY)
        assert isinstance(after, Restart)
        pauses.append(after.after_seconds)
    assert pauses == [1, 2, 4, 8, 16]
    given_up = following([crash()] * (POLICY.crashes_most + 1), POLICY)
    assert isinstance(given_up, GiveUp)
    assert "killed-by-signal-6" in given_up.why


def test_a_pause_has_a_longest() -> None:
    policy = RestartPolicy(crashes_most=20)
    after = following([crash()] * 20, policy)
    assert isinstance(after, Restart)
    assert after.after_seconds == policy.longest_pause_seconds


def test_a_life_that_held_makes_the_count_begin_anew() -> None:
    held = crash(ready_seconds=POLICY.stable_seconds)
    just_not = crash(ready_seconds=POLICY.stable_seconds - 0.1)
    assert following([crash()] * 5 + [held], POLICY) == following([crash()], POLICY)
    assert isinstance(following([crash()] * 5 + [just_not], POLICY), GiveUp)
    after = following([crash()] * 4 + [held, crash()], POLICY)
    assert isinstance(after, Restart)
    assert after.after_seconds == 2


def test_a_failed_load_between_crashes_is_no_success() -> None:
    history = [crash(), crash(), failed("address-in-use"), crash()]
    after = following(history, POLICY)
    assert isinstance(after, Restart)
    assert after.after_seconds == 4


def test_being_asked_to_stop_makes_the_count_begin_anew() -> None:
    assert following([crash()] * 5 + [STOPPED, crash()], POLICY) == following([crash()], POLICY)


@pytest.mark.parametrize("reason", ["bad-model", "out-of-memory", "flag-unknown", "load-stalled", "exited"])
def test_a_failure_while_loading_is_not_retried(reason: str) -> None:
    holds = [following([failed(reason)] * count, POLICY) for count in range(1, 9)]
    assert all(isinstance(hold, Hold) for hold in holds)
    assert [hold.for_seconds for hold in holds if isinstance(hold, Hold)] == [10, 20, 40, 80, 160, 320, 600, 600]


@pytest.mark.parametrize("ending", [failed("address-in-use"), failed("out-of-memory", had_neighbour=True)])
def test_a_cause_that_passes_is_retried_a_few_times(ending: Ending) -> None:
    for count in range(1, POLICY.transient_failures_most + 1):
        after = following([ending] * count, POLICY)
        assert isinstance(after, Restart), count
        assert after.after_seconds == 2 ** (count - 1)
    assert isinstance(following([ending] * (POLICY.transient_failures_most + 1), POLICY), Hold)


ENDINGS = st.builds(
    Ending,
    at_seconds=st.just(0.0),
    reason=st.sampled_from(["bad-model", "out-of-memory", "address-in-use", "killed-by-signal-9", "unresponsive"]),
    ready_seconds=st.none() | st.floats(0, 1000),
    was_asked=st.booleans(),
    had_neighbour=st.booleans(),
)


@given(st.lists(ENDINGS, max_size=40))
def test_no_history_leads_to_more_restarts_in_a_row_than_the_caps_allow(history: list[Ending]) -> None:
    after = following(history, POLICY)
    if history and history[-1].was_asked:
        assert after == Rest()
    if not isinstance(after, Restart):
        return
    assert 0 < after.after_seconds <= POLICY.longest_pause_seconds
    # Whatever was before: if all that follows are quick crashes, an end of the restarts comes.
    assert isinstance(following([*history, *[crash(1.0)] * (POLICY.crashes_most + 1)], POLICY), GiveUp)
