"""Fixes for a launch whose figures are the engine's own: each must hold by figures of that kind too."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fixtures.oracle import SparseFolder
from fixtures.planning import GIB, MIB, Question, cards, question, with_available

from app.findings import Finding, Fix, Severity
from app.inventory.devices import Device, Host, Machine
from app.placement.budgets import HOST_NAME, PlacementPlan
from app.placement.excess import excess_bytes, with_excess
from app.placement.rules import judge
from app.placement.rules.computed import with_computed_fixes
from app.placement.rules.memory import judge_memory

Engine = Callable[[PlacementPlan], PlacementPlan]
# Seen on build 11434: an MTP context of f32 caches without flash attention, all of it on the host.
_ON_HOST: dict[str, Any] = {
    "placement": {"devices": []},
    "speculation": {"method": "mtp"},
    "context": {"size": 131_072, "k_type": "f32", "v_type": "f32", "flash_attention": "off"},
}


def taking(**more_mib: float) -> Engine:
    """An engine that takes so much more (less, where negative) than planned of compute buffers, by place."""

    def engine(planned: PlacementPlan) -> PlacementPlan:
        def told(name: str, terms: Any) -> dict[str, int]:
            return {**terms, "compute": terms["compute"] + round(more_mib.get(name, 0) * MIB)}

        devices = {budget.name: told(budget.name, budget.terms) for budget in planned.devices}
        return planned.with_terms(devices, told(HOST_NAME, planned.host.terms), planned.host.mapped_bytes)

    return engine


def judged(asked: Question, engine: Engine) -> dict[str, Finding]:
    return {found.rule: found for found in judge_memory(asked.case, engine(asked.planned), asked.replan)}


def after(asked: Question, engine: Engine, fix: Fix) -> PlacementPlan:
    """What the engine says of the launch with a fix."""
    return engine(asked.with_fix(fix).planned)


def with_host(asked: Question, short_bytes: int, *, resident: bool = True) -> Question:
    """The same on a host that lacks so much for it, by the plan alone."""
    host = asked.planned.host
    return asked.on(
        with_available(asked.case.machine, (host.resident_bytes if resident else host.required_bytes) - short_bytes)
    )


@pytest.mark.parametrize("more_mib", [0, 17, 192])
@pytest.mark.parametrize("lacking_gib", [1, 9, 11])
def test_what_the_engine_takes_more_on_the_host_is_kept_free_there(
    sparse: SparseFolder, more_mib: int, lacking_gib: int
) -> None:
    asked = with_host(question(sparse, "qwen35moe_35b", cards(), **_ON_HOST), lacking_gib * GIB)
    engine = taking(host=more_mib)
    fixes = judged(asked, engine)["host-memory"].fixes
    assert "context" in fixes[-1].patch
    for fix in fixes:
        assert after(asked, engine, fix).fits, fix.description
    # 1,024 tokens more would not have fitted: nothing is kept free twice.
    longer = Fix("", {"context": {"size": fixes[-1].patch["context"]["size"] + 1024}})
    assert not after(asked, engine, longer).fits


def test_the_same_for_mapped_weights_that_are_to_stay_in_memory(sparse: SparseFolder) -> None:
    asked = with_host(question(sparse, "qwen35moe_35b", cards(), **_ON_HOST), 9 * GIB, resident=False)
    for more_mib in (0, 192):
        engine = taking(host=more_mib)
        found = judged(asked, engine)["host-memory"]
        assert found.severity is (Severity.ERROR if asked.planned.host.mapped_bytes < 9 * GIB else Severity.WARNING)
        assert found.fixes
        for fix in found.fixes:
            assert after(asked, engine, fix).fits
    roomy = with_host(question(sparse, "qwen35moe_35b", cards(), **_ON_HOST), GIB, resident=False)
    engine = taking(host=192)
    warning = judged(roomy, engine)["host-memory"]
    assert (warning.severity, len(warning.fixes)) == (Severity.WARNING, 2)
    for fix in warning.fixes:
        assert (after(roomy, engine, fix).host.headroom_bytes or 0) >= 0


@pytest.mark.parametrize("more_mib", [0, 192, 700])
def test_fixes_for_a_device_make_the_prompt_cache_as_small_as_the_engine_needs(
    sparse: SparseFolder, more_mib: int
) -> None:
    asked = question(
        sparse, "qwen3_32b", cards(24, host_gib=5), context={"size": 32_768, "prompt_cache_bytes": 8 * GIB}
    )
    engine = taking(host=more_mib)
    found = judged(asked, engine)["device-memory"]
    assert found.fixes
    for fix in found.fixes:
        assert after(asked, engine, fix).fits, fix.description


def test_a_prompt_cache_is_measured_by_the_figures_at_hand_also_where_they_are_less(sparse: SparseFolder) -> None:
    """The planner has 300 MiB more on the host, and 200 MiB more on the card than it holds: the engine knows better."""
    plain = question(sparse, "qwen3_8b", cards(24), context={"prompt_cache_bytes": 4 * GIB})
    engine = taking(host=-1, CUDA0=-200)
    card = plain.planned.devices[0]
    tight = plain.on(cards((card.required_bytes + card.margin_bytes - 100 * MIB) / GIB, host_gib=64))
    asked = with_host(tight, GIB)
    assert not asked.planned.devices[0].fits
    assert engine(asked.planned).devices[0].fits
    first = judged(asked, engine)["host-memory"].fixes[0]
    size = first.patch["context"]["prompt_cache_bytes"]
    assert after(asked, engine, first).fits
    assert not after(asked, engine, Fix("", {"context": {"prompt_cache_bytes": size + 64 * MIB}})).fits


@pytest.mark.parametrize(("more_mib", "offered"), [(100, True), (101, False)])
def test_fixes_of_other_rules_keep_it_free_too(sparse: SparseFolder, more_mib: int, offered: bool) -> None:
    """A larger context for each slot, on a host that has 100 MiB more than the plan of that."""
    context = {"size": 16_384, "slots": 4, "prompt_cache_bytes": 0}
    asked = question(sparse, "qwen3_8b", cards(), placement={"devices": []}, context=context)
    (found,) = (one for one in judge(asked.case) if one.rule == "slots-divide-context")
    larger = next(fix for fix in found.fixes if "size" in fix.patch["context"])
    tight = asked.on(with_available(asked.case.machine, asked.with_fix(larger).planned.host.resident_bytes + 100 * MIB))
    at_hand = taking(host=more_mib)(tight.planned)
    assert at_hand.fits
    (fixed,) = with_computed_fixes([found], tight.case, at_hand, tight.replan)
    assert (larger in fixed.fixes) is offered


def test_less_for_one_thing_is_no_room_for_another(sparse: SparseFolder) -> None:
    own = question(sparse, "qwen3_8b", cards(24)).planned
    (card,) = own.devices
    told = {**card.terms, "compute": card.terms["compute"] + 5, "kv_cache": card.terms["kv_cache"] - 7}
    at_hand = own.with_terms({"CUDA0": told}, {**own.host.terms, "weights": 0}, 0)
    assert excess_bytes(at_hand, own) == {"CUDA0": 5}
    assert excess_bytes(own, own) == {}
    assert with_excess(own, {}) is own


def test_a_device_that_gets_nothing_gets_none_of_it(sparse: SparseFolder) -> None:
    own = question(sparse, "qwen3_8b", cards(24, 24), placement={"devices": ["CUDA0"]}).planned
    planned = with_excess(own, {"CUDA0": 1, "CUDA1": 2, HOST_NAME: 3})
    assert [budget.required_bytes for budget in planned.devices] == [own.devices[0].required_bytes + 1, 0]
    assert planned.host.resident_bytes == own.host.resident_bytes + 3
    assert planned.host.required_bytes == own.host.required_bytes + 3


def test_devices_that_share_the_host_s_memory_find_it_promised(sparse: SparseFolder) -> None:
    """One budget for both: what either takes more, the other has less, whoever made the figures."""
    shared = Device("Vulkan0", "", 96 * GIB, 96 * GIB, integrated=True)
    other = Device("Vulkan1", "", 96 * GIB, 96 * GIB, integrated=True)
    card = Device("CUDA0", "", 24 * GIB, 24 * GIB)
    machine = Machine((shared, other, card), Host(96 * GIB, 96 * GIB))
    own = question(sparse, "qwen3_8b", machine, placement={"tensor_split": [2, 1, 1]}).planned
    more = taking(Vulkan0=100, Vulkan1=10, CUDA0=1000, host=1)(own)
    left = [new.headroom_bytes - old.headroom_bytes for new, old in zip(more.devices, own.devices, strict=True)]
    assert left == [-111 * MIB, -111 * MIB, -1000 * MIB]
    assert (more.host.resident_headroom_bytes or 0) - (own.host.resident_headroom_bytes or 0) == -111 * MIB
    assert taking(Vulkan0=-100, Vulkan1=-10, CUDA0=-1000, host=-1)(more) == own
    assert replace(own) == own.with_terms({}, own.host.terms, own.host.mapped_bytes)
