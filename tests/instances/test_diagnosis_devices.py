"""Memory beyond the plan, devices that wait, fill unevenly or are slowed: both sides of each."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from fixtures.evidences import CORES, LOOKS, as_planned, filled, found, looks, measured, patched, processes
from fixtures.planning import GIB, MIB, cards

from app.findings import Severity
from app.instances.diagnosis import degradations_of, diagnose
from app.instances.diagnosis.balance import FULL_SHARE, SPARE_SHARE
from app.instances.diagnosis.memory import tolerance_bytes
from app.instances.evidence import Evidence, Tally
from app.launch.report import Launch

OVER = "memory-over-plan"
Large = Callable[..., Launch]


def with_more(launch: Launch, name: str, term: str, n_bytes: int) -> Evidence:
    placed = measured(launch)
    terms = {**placed.memory[name], term: placed.memory[name].get(term, 0) + n_bytes}
    return as_planned(launch, measured=replace(placed, memory={**placed.memory, name: terms}), devices={})


@pytest.mark.parametrize("term", ["compute", "kv_cache", "weights", "draft_compute", "projector"])
def test_a_term_over_its_plan(term: str, drafted: Launch) -> None:
    planned = measured(drafted).memory["CUDA0"].get(term, 0)
    tolerance = tolerance_bytes(planned)
    assert tolerance == max(64 * MIB, round(planned / 10))
    assert found(OVER, with_more(drafted, "CUDA0", term, tolerance)) is None
    evidence = with_more(drafted, "CUDA0", term, tolerance + 1)
    verdict = found(OVER, evidence)
    assert verdict is not None
    assert verdict.severity is Severity.WARNING
    assert term in verdict.observed
    margin = patched(drafted.profile, verdict.fixes[0]).placement.margin_bytes
    assert margin == GIB + tolerance + 1
    assert degradations_of(diagnose(evidence)) == ()


def test_each_device_is_told_by_itself(hybrid: Launch) -> None:
    placed = measured(hybrid)
    memory = {name: {**terms, "compute": terms.get("compute", 0) + GIB} for name, terms in placed.memory.items()}
    told = [each for each in diagnose(as_planned(hybrid, measured=replace(placed, memory=memory))) if each.rule == OVER]
    assert [each.message.split(" this launch")[0] for each in told] == ["On CUDA0", "On CUDA1", "On host"]
    assert [len(each.fixes) for each in told] == [1, 1, 0]


def test_what_is_only_known_to_be_mapped_is_never_too_much(drafted: Launch) -> None:
    """It spans what lies between the weights, too; what is told as weights counts."""
    vague = replace(measured(drafted), mapped={"host": {"weights": 9 * GIB}})
    assert diagnose(as_planned(drafted, measured=vague)) == []
    assert found(OVER, with_more(drafted, "host", "weights", 9 * GIB)) is not None


def test_what_the_driver_shows_beside_the_plan(drafted: Launch) -> None:
    """Whose it is cannot be told: information only, and only where the engine's own figures say nothing."""
    (budget,) = [device for device in drafted.report.devices if device["name"] == "CUDA0"]
    left = budget["free_bytes"] - budget["required_bytes"] - tolerance_bytes(budget["required_bytes"])
    assert found(OVER, as_planned(drafted, devices=filled(drafted, {"CUDA0": left}))) is None
    seen = filled(drafted, {"CUDA0": left - 1})
    verdict = found(OVER, as_planned(drafted, devices=seen))
    assert verdict is not None
    assert verdict.severity is Severity.INFO
    evidence = replace(with_more(drafted, "CUDA0", "compute", GIB), devices=seen)
    both = found(OVER, evidence)
    assert both is not None
    assert both.severity is Severity.WARNING


def test_a_device_that_the_launch_does_not_use_is_not_its_matter(drafted: Launch) -> None:
    assert found(OVER, as_planned(drafted, devices=filled(drafted, {"CUDA1": 0}))) is None


SWINGING = [0.95, 0.95, 0.9, 0.0, 0.05, 0.0] * 5
STEADY = [0.95] * LOOKS


def starved(
    launch: Launch, rates: Sequence[float | None], busy: Sequence[float | None], cores: int | None = CORES
) -> Evidence:
    seen = {name: looks(rates, None, None) for name in ("CUDA0", "CUDA1")}
    return as_planned(launch, devices=seen, processes=processes(busy), physical_cores=cores)


WORKING = [12.0] * LOOKS


@pytest.mark.parametrize(
    ("rates", "busy", "is_found"),
    [
        (SWINGING, WORKING, True),
        (SWINGING, [9.6] * LOOKS, True),
        (SWINGING, [9.5] * LOOKS, False),
        (STEADY, WORKING, False),
        ([0.0] * LOOKS, WORKING, False),
        # Between the two states: it has work, only not the most.
        ([0.7, 0.3] * 15, WORKING, False),
        # One pause is no swing.
        ([0.95] * 15 + [0.0] * 15, WORKING, False),
        # A pause now and then is no state.
        ([0.95] * 5 + [0.0] + [0.95] * 4 + [0.0] + [0.95] * 19, WORKING, False),
        # Requests come and go: cores rest while the device does, also where one of the two is seen late.
        (SWINGING, [12.0, 12.0, 12.0, 0.1, 0.1, 0.1] * 5, False),
        (SWINGING * 2, [0.1, 12.0, 12.0, 12.0, 0.1, 0.1] * 10, False),
        (SWINGING * 2, [12.0, 12.0, 0.1, 0.1, 0.1, 12.0] * 10, False),
        (SWINGING[:9], WORKING[:9], False),
        (SWINGING, [None] * LOOKS, False),
        ([None] * LOOKS, WORKING, False),
    ],
)
def test_a_device_that_waits_for_the_host(
    rates: list[float | None], busy: list[float | None], is_found: bool, drafted: Launch
) -> None:
    evidence = starved(drafted, rates, busy)
    verdict = found("device-starved", evidence)
    assert (verdict is not None) is is_found
    assert degradations_of(diagnose(evidence)) == (("device-starved",) if is_found else ())


def test_minutes_of_rest_do_not_hide_it(drafted: Launch) -> None:
    assert found("device-starved", starved(drafted, [0.0] * 300 + SWINGING, [0.1] * 300 + WORKING)) is not None


def test_a_thread_that_polls_is_not_most_of_the_cores(drafted: Launch) -> None:
    for cores, is_found in ((1, False), (2, False), (None, False)):
        evidence = starved(drafted, SWINGING, [1.0] * LOOKS, cores)
        assert (found("device-starved", evidence) is not None) is is_found
    assert found("device-starved", starved(drafted, SWINGING, [1.3] * LOOKS, 2)) is not None


def test_a_load_is_not_judged(drafted: Launch) -> None:
    evidence = replace(starved(drafted, SWINGING, WORKING), tally=Tally())
    assert found("device-starved", evidence) is None


def test_work_that_the_plan_has_on_the_host_is_advice(hybrid: Launch, large: Large) -> None:
    evidence = starved(hybrid, SWINGING, WORKING)
    verdict = found("device-starved", evidence)
    assert verdict is not None
    assert verdict.severity is Severity.INFO
    moved = sum(span["experts_on_host"] for span in hybrid.report.layers)
    assert f"experts of {moved} layers" in verdict.message
    assert degradations_of(diagnose(evidence)) == ()
    some = large("qwen3_8b", placement={"devices": ["CUDA0"], "gpu_layers": 30})
    told = found("device-starved", starved(some, SWINGING, WORKING))
    assert told is not None
    assert "7 layers" in told.message
    assert patched(some.profile, told.fixes[0]).placement.gpu_layers == "all"


def test_what_may_have_gone_to_the_host_unseen_is_offered(large: Large) -> None:
    launch = large(
        "qwen3_8b",
        placement={"devices": ["CUDA0"]},
        context={"k_type": "q8_0", "v_type": "q5_1", "flash_attention": "on"},
        extra_args=["--temp", "0", "-nkvo"],
    )
    verdict = found("device-starved", starved(launch, SWINGING, WORKING))
    assert verdict is not None
    precise, offloaded = (patched(launch.profile, fix) for fix in verdict.fixes)
    assert (precise.context.k_type, precise.context.v_type) == ("f16", "f16")
    assert offloaded.extra_args == ("--temp", "0")


def test_a_launch_on_the_host_starves_nobody(large: Large) -> None:
    launch = large("qwen3_06b_draft", placement={"devices": ["none"], "gpu_layers": 0})
    assert found("device-starved", starved(launch, SWINGING, WORKING)) is None


def rooms(launch: Launch, first: int, second: int) -> Evidence:
    return as_planned(launch, devices=filled(launch, {"CUDA0": first, "CUDA1": second}))


def test_a_full_device_beside_one_with_room_while_experts_are_on_the_host(hybrid: Launch, large: Large) -> None:
    total = 48 * GIB
    full, spare = round(FULL_SHARE * total), round(SPARE_SHARE * total)
    for first, second, is_found in (
        (full - 1 + spare, full - 1, True),
        (full + 1 + spare, full + 1, False),
        (full - 2 + spare, full - 1, False),
        (full - 1, full - 1 + spare, True),
    ):
        verdict = found("expert-offload-imbalance", rooms(hybrid, first, second))
        assert (verdict is not None) is is_found, (first, second)
    even = large("glm4moe_air", placement={"tensor_split": [1, 1]}, context={"size": 8192})
    assert found("expert-offload-imbalance", rooms(even, 20 * GIB, GIB)) is None
    alone = large("glm4moe_air", placement={"devices": ["CUDA0"], "cpu_moe_layers": "all"}, context={"size": 8192})
    assert found("expert-offload-imbalance", as_planned(alone, devices=filled(alone, {"CUDA0": 0}))) is None


def test_its_fix_moves_layers_to_the_device_with_room(hybrid: Launch, large: Large) -> None:
    """Planned again, the two are more alike, and no layer is lost."""
    verdict = found("expert-offload-imbalance", rooms(hybrid, 40 * GIB, 2 * GIB))
    assert verdict is not None
    fix = verdict.fixes[0]
    shares = fix.patch["placement"]["tensor_split"]
    spans = hybrid.report.layers
    assert sum(shares) == spans[-1]["last"] - spans[0]["first"] + 2
    # Half of the difference, in whole layers.
    assert 15 * GIB < fix.effect_bytes <= 19 * GIB
    placement = {"cpu_moe_layers": 24, **fix.patch["placement"]}
    after = large("glm4moe_air", on=cards(48, 48), placement=placement, context={"size": 16_384})
    before_bytes, after_bytes = (
        [device["required_bytes"] for device in launch.report.devices] for launch in (hybrid, after)
    )
    assert after_bytes[1] < before_bytes[1]
    assert after_bytes[0] > before_bytes[0]
    freed = before_bytes[1] - after_bytes[1]
    assert freed == pytest.approx(fix.effect_bytes, rel=0.2)


def test_other_splits_get_advice_only(large: Large) -> None:
    launch = large(
        "glm4moe_air",
        placement={"cpu_moe_layers": 24, "tensor_split": [1, 1], "split_mode": "row"},
        context={"size": 8192},
    )
    verdict = found("expert-offload-imbalance", rooms(launch, 20 * GIB, GIB))
    assert verdict is None or [fix.patch for fix in verdict.fixes] == [{}]


@pytest.mark.parametrize(
    ("reasons", "severity"),
    [
        (("hardware-thermal-slowdown",), Severity.WARNING),
        (("software-power-cap", "power-brake"), Severity.WARNING),
        (("software-power-cap",), Severity.INFO),
        (("idle", "application-clocks", "sync-boost", "display-clocks", "reason-0x200"), None),
        ((), None),
    ],
)
def test_clocks_that_the_driver_lowers(reasons: tuple[str, ...], severity: Severity | None, drafted: Launch) -> None:
    slowed = looks([0.9] * 10, None, None, throttle_reasons=reasons, temperature_celsius=88, power_watts=320.4)
    verdict = found("thermal-or-power-limit", as_planned(drafted, devices={"CUDA0": slowed}))
    assert (verdict.severity if verdict else None) is severity
    if verdict is not None:
        assert verdict.observed == "CUDA0 88 °C 320 W"
    others = as_planned(drafted, devices={"CUDA1": slowed})
    assert found("thermal-or-power-limit", others) is None
    assert degradations_of(diagnose(others)) == ()


def test_a_limit_counts_where_it_lasts_and_is_of_now(drafted: Launch) -> None:
    hot = replace(looks([0.9], None, None)[0], throttle_reasons=("hardware-slowdown",))
    cool = replace(hot, throttle_reasons=())

    def seen(*states: bool) -> bool:
        timed = [replace(hot if is_hot else cool, at_seconds=float(at)) for at, is_hot in enumerate(states)]
        return found("thermal-or-power-limit", as_planned(drafted, devices={"CUDA0": timed})) is not None

    assert seen(*[True, False] * 30)
    assert not seen(*[True, False, False] * 20)
    assert not seen(True, True)
    assert seen(True, True, True)
    assert not seen(*[True] * 300, *[False] * 60)
    assert seen(*[False] * 300, *[True] * 60)
