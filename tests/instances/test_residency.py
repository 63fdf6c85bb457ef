"""Which instances give way: by bytes, never a busy or pinned one, never one for nothing."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from app.instances.residency import Decision, Evict, Hold, Launch, Refuse, ResidencyPolicy, Resident, Wait, decide

GIB = 1 << 30
POLICY = ResidencyPolicy()


def resident(
    identifier: int,
    held: dict[str, int],
    hold: Hold = Hold.FREE,
    *,
    idle: float = 60,
    reload: float = 10,
    priority: int = 0,
) -> Resident:
    return Resident(identifier, f"profile-{identifier}", held, hold, idle, reload, priority)


def evicted(decision: Decision) -> set[int]:
    assert isinstance(decision, Evict), decision
    return set(decision.instance_ids)


def test_what_has_room_is_launched_beside_all_others() -> None:
    busy = resident(1, {"CUDA0": 8 * GIB}, Hold.BUSY)
    assert decide("wanted", {}, [busy], POLICY) == Launch()
    assert decide("wanted", {"CUDA0": 0}, [busy], POLICY) == Launch()


def test_bytes_on_the_device_that_lacks_them_decide_and_not_the_count() -> None:
    elsewhere = resident(1, {"CUDA1": 20 * GIB}, idle=10_000)
    small = resident(2, {"CUDA0": GIB}, idle=10_000)
    large = resident(3, {"CUDA0": 6 * GIB}, idle=5)
    assert evicted(decide("wanted", {"CUDA0": 4 * GIB}, [elsewhere, small, large], POLICY)) == {3}
    assert evicted(decide("wanted", {"CUDA0": GIB // 2}, [elsewhere, small, large], POLICY)) == {2}


def test_the_longest_idle_goes_and_of_equals_the_quickest_to_load() -> None:
    fresh, stale = resident(1, {"CUDA0": GIB}, idle=10), resident(2, {"CUDA0": GIB}, idle=1000)
    assert evicted(decide("wanted", {"CUDA0": GIB}, [fresh, stale], POLICY)) == {2}
    slow, quick = resident(1, {"CUDA0": GIB}, reload=300), resident(2, {"CUDA0": GIB}, reload=5)
    assert evicted(decide("wanted", {"CUDA0": GIB}, [slow, quick], POLICY)) == {2}


def test_priority_comes_before_all_that() -> None:
    kept = resident(1, {"CUDA0": GIB}, idle=10_000, reload=1, priority=5)
    goes = resident(2, {"CUDA0": GIB}, idle=1, reload=500)
    assert evicted(decide("wanted", {"CUDA0": GIB}, [kept, goes], POLICY)) == {2}


def test_only_what_is_idle_goes_and_the_rest_is_waited_for_unless_it_is_pinned() -> None:
    for hold in (Hold.BUSY, Hold.LOADING, Hold.ENDING):
        assert decide("wanted", {"CUDA0": GIB}, [resident(1, {"CUDA0": GIB}, hold)], POLICY) == Wait((1,))
    refused = decide("wanted", {"CUDA0": GIB}, [resident(1, {"CUDA0": GIB}, Hold.PINNED)], POLICY)
    assert isinstance(refused, Refuse)
    assert "profile-1 (pinned)" in refused.finding.message
    assert "CUDA0 lacks 1,024 MiB" in refused.finding.message


def test_what_is_ending_counts_before_anybody_else_has_to_go() -> None:
    ending, idle = resident(1, {"CUDA0": GIB}, Hold.ENDING), resident(2, {"CUDA0": GIB})
    assert decide("wanted", {"CUDA0": GIB}, [ending, idle], POLICY) == Wait((1,))
    assert evicted(decide("wanted", {"CUDA0": GIB + 1}, [ending, idle], POLICY)) == {2}


def test_of_busy_ones_only_as_many_are_waited_for_as_are_needed() -> None:
    dear, cheap = (resident(at, {"CUDA0": GIB}, Hold.BUSY, reload=100 / at) for at in (1, 2))
    ending = resident(3, {"CUDA0": GIB}, Hold.ENDING)
    assert decide("wanted", {"CUDA0": GIB}, [dear, cheap], POLICY) == Wait((2,))
    assert decide("wanted", {"CUDA0": 2 * GIB}, [dear, cheap, ending], POLICY) == Wait((3, 2))
    # An idle one will go as well, and is not waited for.
    idle = resident(4, {"CUDA0": GIB})
    assert decide("wanted", {"CUDA0": 2 * GIB}, [cheap, idle], POLICY) == Wait((2,))


def test_who_may_not_evict_does_not_wait_for_what_serves() -> None:
    may_not = ResidencyPolicy(may_evict=False)
    busy, ending = resident(1, {"CUDA0": GIB}, Hold.BUSY), resident(2, {"CUDA0": GIB}, Hold.ENDING)
    assert isinstance(decide("wanted", {"CUDA0": GIB}, [busy], may_not), Refuse)
    assert decide("wanted", {"CUDA0": GIB}, [busy, ending], may_not) == Wait((2,))


def test_without_the_right_to_evict_nobody_goes() -> None:
    refused = decide("wanted", {"CUDA0": GIB}, [resident(1, {"CUDA0": GIB})], ResidencyPolicy(may_evict=False))
    assert isinstance(refused, Refuse)


DEVICES = ("CUDA0", "CUDA1", "host")
HELD = st.dictionaries(st.sampled_from(DEVICES), st.integers(0, 8), max_size=3)
RESIDENTS = st.lists(
    st.tuples(HELD, st.sampled_from(Hold), st.floats(0, 1e5), st.floats(0, 600), st.integers(-2, 2)), max_size=15
).map(lambda rows: [Resident(at + 1, f"p{at}", *row) for at, row in enumerate(rows)])
SHORT = st.dictionaries(st.sampled_from(DEVICES), st.integers(0, 20), max_size=3)


def covers(chosen: list[Resident], short: dict[str, int]) -> bool:
    return all(sum(each.held_bytes.get(device, 0) for each in chosen) >= lack for device, lack in short.items())


@given(SHORT, RESIDENTS)
def test_any_decision_keeps_its_promises(short: dict[str, int], residents: list[Resident]) -> None:
    decision = decide("wanted", short, residents, POLICY)
    free = [each for each in residents if each.hold is Hold.FREE]
    ending = [each for each in residents if each.hold is Hold.ENDING]
    passing = [each for each in residents if each.hold.passes]
    if isinstance(decision, Launch):
        assert covers([], short)
    elif isinstance(decision, Evict):
        chosen = [each for each in residents if each.instance_id in decision.instance_ids]
        assert chosen
        assert all(each.hold is Hold.FREE for each in chosen)
        assert covers([*chosen, *ending], short)
        for each in chosen:
            assert not covers([other for other in [*chosen, *ending] if other is not each], short), "one for nothing"
    elif isinstance(decision, Wait):
        assert covers(ending, short) or not covers([*free, *ending], short)
        assert covers([*free, *passing], short)
    else:
        assert not covers([*free, *passing], short)


@given(SHORT, RESIDENTS)
def test_the_cheapest_of_all_sets_goes(short: dict[str, int], residents: list[Resident]) -> None:
    decision = decide("wanted", short, residents[:8], POLICY)
    if not isinstance(decision, Evict):
        return
    free = [each for each in residents[:8] if each.hold is Hold.FREE]
    ending = [each for each in residents[:8] if each.hold is Hold.ENDING]
    highest = max(each.priority for each in free if each.instance_id in decision.instance_ids)
    subsets = chain.from_iterable(combinations(free, size) for size in range(1, len(free) + 1))
    sufficient = [subset for subset in subsets if covers([*subset, *ending], short)]
    assert highest == min(max(each.priority for each in subset) for subset in sufficient)
