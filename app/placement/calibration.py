"""What earlier launches really took corrects the terms that are only estimated. Pure."""

from collections.abc import Mapping

from app.placement.budgets import HOST_NAME, PlacementPlan

# Weights and caches are exact; these are what the engine's graphs and the driver make of a launch.
ESTIMATED_TERMS = frozenset({"compute", "draft_compute", "overhead"})
Measured = Mapping[str, Mapping[str, int]]


def calibrated(planned: PlacementPlan, measured: Measured) -> PlacementPlan:
    """The plan with the measured bytes (by device, the host under `host`, and term) in the place of its estimates.

    `measured` is of the same profile, build and devices; it may have had a drafter that the plan goes without. What
    was not measured stays as it was planned.
    """
    drafts = any(
        terms.get("draft_compute") for terms in (planned.host.terms, *(each.terms for each in planned.devices))
    )
    trusted = ESTIMATED_TERMS if drafts else ESTIMATED_TERMS - {"draft_compute"}

    def corrected(name: str, terms: Mapping[str, int]) -> dict[str, int]:
        return {**terms, **{term: used for term, used in measured.get(name, {}).items() if term in trusted}}

    devices = {device.name: corrected(device.name, device.terms) for device in planned.devices}
    return planned.with_terms(devices, corrected(HOST_NAME, planned.host.terms), planned.host.mapped_bytes)
