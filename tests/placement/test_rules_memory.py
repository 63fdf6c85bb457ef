"""device-memory and host-memory, to the byte."""

from dataclasses import replace
from typing import Any

import pytest
from fixtures.oracle import SparseFolder
from fixtures.planning import GIB, MIB, Question, cards, question, with_available, with_free

from app.findings import Severity
from app.inventory.devices import Device, Host, Machine
from app.placement.plan import DEFAULT_MARGIN_BYTES
from app.placement.rules.memory import judge_memory

_EVEN: dict[str, Any] = {"placement": {"tensor_split": [1, 1]}}


def needs(asked: Question, device: str) -> int:
    budget = asked.planned.device(device)
    assert budget is not None
    return budget.required_bytes


@pytest.mark.parametrize("short_bytes", [0, 1])
def test_a_device_with_the_last_byte_fits_and_without_it_does_not(sparse: SparseFolder, short_bytes: int) -> None:
    asked = question(sparse, "qwen3_8b", cards(24, 24), **_EVEN)
    exact = needs(asked, "CUDA1") + DEFAULT_MARGIN_BYTES
    found = asked.on(with_free(asked.case.machine, "CUDA1", exact - short_bytes)).found("device-memory")
    if not short_bytes:
        assert found is None
        return
    assert found is not None
    assert (found.severity, found.overridable) == (Severity.ERROR, True)
    assert "CUDA1 lacks 1 byte:" in found.message
    assert "CUDA0" not in found.message


def test_what_is_reserved_for_others_counts_like_what_is_used(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_8b", cards(24), placement={"devices": ["CUDA0"]})
    exact = 24 * GIB - needs(asked, "CUDA0") - DEFAULT_MARGIN_BYTES
    assert replace(asked, reserved={"CUDA0": exact}).found("device-memory") is None
    assert replace(asked, reserved={"CUDA0": exact + 1}).found("device-memory") is not None


def test_the_margin_of_the_profile_is_kept_free(sparse: SparseFolder) -> None:
    plain = question(sparse, "qwen3_8b", cards(24))
    left = 24 * GIB - needs(plain, "CUDA0")
    for margin, fits in ((left, True), (left + 1, False)):
        asked = question(sparse, "qwen3_8b", cards(24), placement={"margin_bytes": margin})
        assert (asked.found("device-memory") is None) is fits


def test_the_busiest_device_decides_and_never_the_sum(sparse: SparseFolder) -> None:
    """Far more is free in all than is needed; the first card alone is too small."""
    asked = question(sparse, "qwen3_32b", cards(8, 80), **_EVEN)
    found = asked.found("device-memory")
    assert sum(budget.headroom_bytes for budget in asked.planned.devices) > 40 * GIB
    assert found is not None
    assert found.message.startswith("CUDA0 lacks")


def test_every_term_is_in_the_evidence_and_each_device_that_is_over(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_32b", cards(8, 6), **_EVEN)
    found = asked.found("device-memory")
    assert found is not None
    assert found.message.startswith("CUDA1 lacks")
    assert "CUDA0 too." in found.message
    for budget in asked.planned.devices:
        for name, n_bytes in budget.terms.items():
            assert (f"{name} {n_bytes >> 20:,} MiB" in found.evidence) is (n_bytes >= MIB), name
    assert "free 8,192 MiB - reserved 0 MiB - margin 512 MiB" in found.expected


def test_a_device_whose_memory_is_not_told_is_a_warning(sparse: SparseFolder) -> None:
    where = Machine([Device("Vulkan0")], Host(64 * GIB, 60 * GIB))
    found = question(sparse, "qwen3_8b", where).found("device-memory")
    assert found is not None
    assert (found.severity, found.overridable) == (Severity.WARNING, False)
    assert "Vulkan0" in found.message
    unused = question(sparse, "qwen3_8b", where, placement={"devices": ["none"], "gpu_layers": 0})
    assert unused.found("device-memory") is None


def test_what_the_engine_cannot_place_at_all_is_not_a_judgement(sparse: SparseFolder) -> None:
    where = Machine([Device("RPC0", "", 24 * GIB, 24 * GIB)], Host(64 * GIB, 60 * GIB))
    asked = question(sparse, "qwen3_8b", where, placement={"split_mode": "row"})
    found = asked.found("device-memory")
    assert found is not None
    assert (found.severity, found.overridable) == (Severity.ERROR, False)
    assert asked.with_fix(found.fixes[0]).judged() == []


def test_figures_of_the_engine_count_where_they_are_more(sparse: SparseFolder) -> None:
    """The plan thinks that it fits; the engine said otherwise: fixes have to make up for that too."""
    asked = question(sparse, "qwen3_8b", cards(12), context={"size": 32_768})
    thought = asked.planned
    more = thought.devices[0].headroom_bytes + GIB
    terms = {**thought.devices[0].terms, "compute": thought.devices[0].terms["compute"] + more}
    said = replace(thought, devices=[replace(thought.devices[0], terms=terms)])
    (found,) = [f for f in judge_memory(asked.case, said, asked.replan) if f.rule == "device-memory"]
    assert found.message.startswith("CUDA0 lacks 1,024 MiB")
    assert found.fixes
    for fix in found.fixes:
        assert asked.with_fix(fix).planned.devices[0].headroom_bytes >= more


_HOST: dict[str, Any] = {"context": {"size": 8192, "prompt_cache_bytes": 4 * GIB}, "placement": {"cpu_moe_layers": 48}}


@pytest.mark.parametrize("short_bytes", [0, 1])
def test_what_must_stay_on_the_host_fits_to_the_byte(sparse: SparseFolder, short_bytes: int) -> None:
    asked = question(sparse, "qwen3moe_30b", cards(24), **_HOST)
    resident = asked.planned.host.resident_bytes
    found = asked.on(with_available(asked.case.machine, resident - short_bytes)).found("host-memory")
    assert found is not None
    is_error = found.severity is Severity.ERROR
    assert (is_error, found.overridable) == ((True, True) if short_bytes else (False, False))
    assert ("lacks 1 byte:" in found.message) is bool(short_bytes)


@pytest.mark.parametrize("short_bytes", [0, 1])
def test_weights_that_are_only_mapped_are_a_warning(sparse: SparseFolder, short_bytes: int) -> None:
    asked = question(sparse, "qwen3moe_30b", cards(24), **_HOST)
    everything = asked.planned.host.required_bytes
    found = asked.on(with_available(asked.case.machine, everything - short_bytes)).found("host-memory")
    if not short_bytes:
        assert found is None
        return
    assert found is not None
    assert found.severity is Severity.WARNING
    assert "again and again" in found.message


def test_a_host_whose_memory_is_not_known_is_a_warning(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3moe_30b", with_available(cards(24), None))
    found = asked.found("host-memory")
    assert found is not None
    assert (found.severity, found.overridable) == (Severity.WARNING, False)


def test_a_smaller_prompt_cache_gives_the_host_its_room(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3moe_30b", cards(24, host_gib=4), **_HOST)
    found = asked.found("host-memory")
    assert found is not None
    first = found.fixes[0]
    assert list(first.patch) == ["context"]
    after = asked.with_fix(first)
    assert after.errors() == set()
    freed = asked.planned.host.required_bytes - after.planned.host.required_bytes
    assert first.effect_bytes == freed
    assert 0 <= freed + (asked.planned.host.resident_headroom_bytes or 0) < 64 * MIB


def test_fewer_experts_on_the_host_where_devices_have_room(sparse: SparseFolder) -> None:
    """Mapped weights exceed the host; the card is nearly empty."""
    asked = question(sparse, "qwen3moe_30b", cards(16, host_gib=12), **_HOST)
    found = asked.found("host-memory")
    assert found is not None
    moving = [fix for fix in found.fixes if "placement" in fix.patch]
    assert moving
    for fix in moving:
        after = asked.with_fix(fix)
        assert after.found("host-memory") is None
        assert after.errors() == set()
