"""Rules that need the plan: whether every device, and the host, has room."""

from collections.abc import Sequence

from app import findings
from app.findings import Finding, Fix
from app.placement.amounts import listed, mib
from app.placement.budgets import DeviceBudget, HostBudget, PlacementPlan
from app.placement.case import LaunchCase
from app.placement.fixes import DeviceFixes
from app.placement.host_fixes import HostFixes
from app.placement.rules import memory_of_drafts, memory_of_experts
from app.placement.trials import Replan, Trials

__all__ = ["Replan", "judge_memory"]


def judge_memory(case: LaunchCase, planned: PlacementPlan, replan: Replan) -> list[Finding]:
    """Every verdict on the plan. `replan` gives the plan of a changed profile on the same files and machine."""
    trials = Trials(case, planned, replan)
    found = [
        _impossible(planned),
        _device_memory(trials),
        _unknown_memory(planned),
        _host_memory(trials),
        _host_unknown(planned),
        memory_of_experts.imbalance(trials),
        memory_of_experts.before_draft(trials),
        memory_of_drafts.only_on_host(trials),
        memory_of_drafts.precision(trials),
    ]
    return [finding for finding in found if finding is not None]


def _impossible(planned: PlacementPlan) -> Finding | None:
    """What no memory would help: the engine exits while it loads."""
    if not planned.impossible:
        return None
    return findings.error(
        "device-memory",
        f"The engine cannot place this launch at all: {'; '.join(planned.impossible)}.",
        expected="a layout that the engine can load",
        observed="; ".join(planned.impossible),
        evidence="the plan; llama.cpp build 11434",
        fixes=[Fix("Divide by layers", {"placement": {"split_mode": "layer"}})],
    )


def _device_memory(trials: Trials) -> Finding | None:
    """The busiest device decides: what others have left helps it nothing."""
    over = sorted(
        (budget for budget in trials.planned.devices if not budget.fits), key=lambda budget: budget.headroom_bytes
    )
    if not over:
        return None
    busiest = over[0]
    also = f" {', '.join(budget.name for budget in over[1:])} too." if over[1:] else ""
    return findings.error(
        "device-memory",
        f"{busiest.name} lacks {mib(-busiest.headroom_bytes)}: {mib(busiest.required_bytes)} are needed there, and "
        f"{mib(_usable_bytes(busiest))} can be had.{also}",
        expected="; ".join(
            f"{budget.name}: at most {mib(_usable_bytes(budget))} = free {mib(budget.free_bytes)} - reserved "
            f"{mib(budget.reserved_bytes)} - margin {mib(budget.margin_bytes)}"
            for budget in over
        ),
        observed="; ".join(f"{budget.name}: {mib(budget.required_bytes)}" for budget in over),
        evidence="the plan: " + "; ".join(f"{budget.name}: {listed(budget.terms)}" for budget in over),
        overridable=True,
        fixes=DeviceFixes(trials, busiest.name).ranked(),
    )


def _usable_bytes(budget: DeviceBudget) -> int:
    return budget.free_bytes - budget.reserved_bytes - budget.margin_bytes


def _unknown_memory(planned: PlacementPlan) -> Finding | None:
    unknown = [budget for budget in planned.devices if not budget.is_known and budget.required_bytes]
    if not unknown:
        return None
    names = ", ".join(budget.name for budget in unknown)
    needed = "; ".join(f"{budget.name}: {mib(budget.required_bytes)}" for budget in unknown)
    return findings.warning(
        "device-memory",
        f"The engine does not tell the memory of {names}: whether what goes there fits is not known.",
        expected="a device whose memory is known",
        observed=f"needed: {needed}; free: not told",
        evidence="the engine's --list-devices",
    )


def _host_memory(trials: Trials) -> Finding | None:
    """What must stay is an error where it does not fit; mapped weights are read again and again."""
    host = trials.planned.host
    resident, left = host.resident_headroom_bytes, host.headroom_bytes
    if resident is None or left is None or left >= 0:
        return None
    evidence = f"the plan: {listed(host.terms)}, of these mapped from files {mib(host.mapped_bytes)}"
    expected = f"at most {mib(_host_usable_bytes(host))} = available {mib(host.available_bytes or 0)} - reserved "
    expected += mib(host.reserved_bytes)
    if resident < 0:
        return findings.error(
            "host-memory",
            f"The host lacks {mib(-resident)}: {mib(host.resident_bytes)} must stay in memory (compute buffers, "
            f"caches, stored-anew weights, the prompt cache), and {mib(_host_usable_bytes(host))} can be had.",
            expected=expected,
            observed=mib(host.resident_bytes),
            evidence=evidence,
            overridable=True,
            fixes=HostFixes(trials, lambda budget: budget.resident_headroom_bytes).ranked(),
        )
    return findings.warning(
        "host-memory",
        f"Weights that are mapped from their file exceed the host's memory by {mib(-left)}: that part is read from "
        "disk again and again.",
        expected=expected,
        observed=mib(host.required_bytes),
        evidence=evidence,
        fixes=_with_all_in_memory(trials),
    )


def _with_all_in_memory(trials: Trials) -> Sequence[Fix]:
    return HostFixes(trials, lambda budget: budget.headroom_bytes).ranked()


def _host_usable_bytes(host: HostBudget) -> int:
    return max(0, (host.available_bytes or 0) - host.reserved_bytes)


def _host_unknown(planned: PlacementPlan) -> Finding | None:
    if planned.host.available_bytes is not None or not planned.host.required_bytes:
        return None
    return findings.warning(
        "host-memory",
        f"The host's memory is not known: whether {mib(planned.host.resident_bytes)} that must stay there fit is not "
        "known.",
        expected="a host whose available memory is known",
        observed="not told",
        evidence="the machine",
    )
