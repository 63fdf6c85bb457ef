"""Rules that need the plan: whether every device, and the host, has room."""

from collections.abc import Callable

from app import findings
from app.findings import Finding
from app.placement.budgets import PlacementPlan
from app.placement.case import LaunchCase
from app.profiles.profile import LaunchProfile

Replan = Callable[[LaunchProfile], PlacementPlan]


def judge_memory(case: LaunchCase, planned: PlacementPlan, replan: Replan) -> list[Finding]:
    """Every verdict on the plan. `replan` gives the plan of a changed profile on the same files and machine."""
    return [
        findings.error(
            "device-memory",
            f"{device.name} has no room: {device.required_bytes >> 20} MiB are needed.",
            expected=f"at most {(device.free_bytes - device.reserved_bytes - device.margin_bytes) >> 20} MiB",
            observed=f"{device.required_bytes >> 20} MiB",
            evidence="the plan",
            overridable=True,
        )
        for device in planned.devices
        if not device.fits
    ]
