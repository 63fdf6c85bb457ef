"""What a launch is known to take above the planner's own figures, kept in the plans of its variations. Pure."""

from collections.abc import Mapping

from app.placement.budgets import HOST_NAME, TERMS, PlacementPlan

_NONE: Mapping[str, int] = dict.fromkeys(TERMS, 0)


def excess_bytes(planned: PlacementPlan, own: PlacementPlan) -> Mapping[str, int]:
    """Bytes that `planned` has above `own`, by device and on the host (`host`); both are of one launch.

    Term by term: what the engine takes less for one thing is nothing that a variation could rely on for another.
    """
    known = _terms(own)
    more = {
        name: sum(max(0, used - known.get(name, _NONE)[term]) for term, used in terms.items())
        for name, terms in _terms(planned).items()
    }
    return {name: n_bytes for name, n_bytes in more.items() if n_bytes}


def with_excess(planned: PlacementPlan, excess: Mapping[str, int]) -> PlacementPlan:
    """A plan with so much more, as overhead; it must stay resident. A device that gets nothing gets nothing of it."""
    if not excess:
        return planned
    used = {budget.name for budget in planned.devices if budget.required_bytes}
    table = {
        name: {**terms, "overhead": terms["overhead"] + excess.get(name, 0)}
        for name, terms in _terms(planned).items()
        if name == HOST_NAME or name in used
    }
    return planned.with_terms(table, table[HOST_NAME], planned.host.mapped_bytes)


def _terms(planned: PlacementPlan) -> dict[str, Mapping[str, int]]:
    return {**{budget.name: budget.terms for budget in planned.devices}, HOST_NAME: planned.host.terms}
