"""Rules on the machine, each on both sides of its boundary."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fixtures.cases import HOST, case, profile

from app.findings import Severity
from app.inventory.devices import Device, Machine, MemoryHolder
from app.placement.case import LaunchCase
from app.placement.rules import judge
from app.placement.rules.machine import (
    device_busy,
    device_order,
    device_stale,
    driver_silent,
    no_device,
    unified_memory,
)
from app.profiles.profile import merge_patch, parse_profile

GIB = 1 << 30
CARD = Device("CUDA0", "NVIDIA GeForce RTX 4090", 24 * GIB, 20 * GIB, "GPU-1", "0000:01:00.0")
OTHER = replace(CARD, name="CUDA1", uuid="GPU-2", pci_bus_id="0000:02:00.0")


def on(
    *devices: Device,
    backends: Sequence[str] | None = ("cuda",),
    unlisted: Sequence[str] = (),
    driver_problem: str | None = None,
    **changes: Any,
) -> LaunchCase:
    """A case on a machine with these devices, for a profile with these changes."""
    asked = case(profile(**changes), device_names=[device.name for device in devices])
    return replace(
        asked,
        machine=Machine(devices, HOST, unlisted, driver_problem),
        engine=replace(asked.engine, device_backends=None if backends is None else frozenset(backends)),
    )


@pytest.mark.parametrize(
    ("asked", "severity"),
    [
        (on(), Severity.WARNING),
        (on(backends=None), Severity.WARNING),
        (on(backends=()), Severity.INFO),
        (on(backends=(), unlisted=["NVIDIA GeForce RTX 4090"]), Severity.WARNING),
        (on(placement={"gpu_layers": 10}), Severity.WARNING),
        (on(placement={"gpu_layers": "auto"}), Severity.WARNING),
        (on(CARD), None),
        (on(placement={"gpu_layers": 0}), None),
        # The choice is said, or is another rule's matter.
        (on(placement={"devices": ["none"]}), None),
        (on(placement={"devices": ["CUDA0"]}), None),
    ],
)
def test_no_device(asked: LaunchCase, severity: Severity | None) -> None:
    found = no_device(asked)
    assert (found.severity if found else None) is severity


def test_a_card_that_the_engine_does_not_list_is_named() -> None:
    found = no_device(on(unlisted=["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060"]))
    assert found is not None
    assert "though the driver shows NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3060" in found.message


def test_the_fix_of_no_device_silences_it() -> None:
    found = no_device(on())
    assert found is not None
    (fix,) = found.fixes
    document = profile().model_dump(mode="json")
    assert no_device(replace(on(), profile=parse_profile(merge_patch(document, fix.patch)))) is None


def test_an_order_of_the_profiles_own() -> None:
    asked = on(CARD, OTHER, env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    found = device_order(asked)
    assert found is not None
    assert (found.severity, found.observed) == (Severity.WARNING, "FASTEST_FIRST")
    (fix,) = found.fixes
    mended = parse_profile(merge_patch(asked.profile.model_dump(mode="json"), fix.patch))
    assert device_order(replace(asked, profile=mended)) is None


@pytest.mark.parametrize(
    "asked",
    [
        on(CARD, OTHER),
        on(CARD, OTHER, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        on(CARD, env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}),
        on(replace(CARD, name="Vulkan0"), replace(OTHER, name="Vulkan1"), env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}),
        on(CARD, replace(OTHER, mismatch="not used"), placement={"devices": ["CUDA0"]}),
    ],
)
def test_an_order_that_is_known(asked: LaunchCase) -> None:
    assert device_order(asked) is None


def test_a_device_that_could_not_be_matched() -> None:
    found = device_order(on(CARD, replace(OTHER, mismatch="by order it would be another")))
    assert found is not None
    assert found.severity is Severity.WARNING
    assert "CUDA1 (NVIDIA GeForce RTX 4090): by order it would be another" in found.message
    assert found.observed == "no match for CUDA1"


def test_memory_that_others_hold() -> None:
    busy = replace(CARD, holders=(MemoryHolder(7), MemoryHolder(4242, 3 * GIB)))
    found = device_busy(on(busy, OTHER))
    assert found is not None
    assert (found.severity, found.observed) == (Severity.WARNING, "CUDA0: pid 4242 with 3072 MiB, pid 7")
    crowd = replace(CARD, holders=tuple(MemoryHolder(pid, pid << 20) for pid in range(1, 11)))
    found = device_busy(on(crowd))
    assert found is not None
    assert found.observed.startswith("CUDA0: pid 10 with 10 MiB, ")
    assert found.observed.endswith("pid 3 with 3 MiB and 2 more")


def test_a_device_that_is_not_used_may_be_busy() -> None:
    busy = replace(OTHER, holders=(MemoryHolder(7, 1),))
    assert device_busy(on(CARD, busy, placement={"devices": ["CUDA0"]})) is None
    assert device_busy(on(CARD, OTHER)) is None
    # The draft lives there.
    drafted = on(
        CARD,
        busy,
        placement={"devices": ["CUDA0"]},
        speculation={"method": "draft", "draft": {"path": "draft.gguf", "device": "CUDA1"}},
    )
    assert device_busy(drafted) is not None


def test_one_budget_for_device_and_host() -> None:
    found = unified_memory(on(replace(CARD, integrated=True), OTHER))
    assert found is not None
    assert (found.severity, found.observed) == (Severity.INFO, "integrated: CUDA0")
    assert unified_memory(on(CARD, OTHER)) is None
    assert unified_memory(on(replace(CARD, integrated=True), OTHER, placement={"devices": ["CUDA1"]})) is None


def test_a_device_that_could_not_be_asked() -> None:
    stale = Device("RPC0", "127.0.0.1:50052", 8 * GIB, 8 * GIB, is_stale=True)
    found = device_stale(on(CARD, stale))
    assert found is not None
    assert (found.severity, found.observed) == (Severity.WARNING, "memory as it was: RPC0")
    assert device_stale(on(CARD, replace(stale, is_stale=False))) is None
    assert device_stale(on(CARD, stale, placement={"devices": ["CUDA0"]})) is None


def test_a_driver_that_fell_silent_refuses_the_launch_unless_forced() -> None:
    found = driver_silent(on(CARD, driver_problem="NVML answers for no card: Unknown Error"))
    assert found is not None
    assert (found.severity, found.overridable) == (Severity.ERROR, True)
    assert "NVML answers for no card: Unknown Error" in found.message
    assert driver_silent(on(CARD)) is None


def test_the_rules_are_asked() -> None:
    asked = on(
        replace(CARD, holders=(MemoryHolder(7, 1),), integrated=True, mismatch="unlike"), driver_problem="Unknown Error"
    )
    found = {finding.rule for finding in judge(asked)}
    assert {"device-busy", "unified-memory", "device-order", "driver-silent"} <= found
    assert "no-device" in {finding.rule for finding in judge(on())}
