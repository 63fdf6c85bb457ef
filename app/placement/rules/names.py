"""The rule on names that a profile answers to."""

from app import findings
from app.findings import Finding, Fix
from app.placement.case import LaunchCase


def alias_taken(case: LaunchCase) -> Finding | None:
    """Two profiles that answer to one name: which one serves would be chance."""
    taken = {name: others for name, others in case.claims.items() if others}
    if not taken:
        return None
    listed = "; ".join(f"{name!r} also names {', '.join(others)}" for name, others in taken.items())
    free = [alias for alias in case.profile.serving.aliases if alias not in taken]
    fixes = [Fix("Give up the names that others use", {"serving": {"aliases": free}})]
    return findings.error(
        "alias-taken",
        f"Another profile answers to the same name: {listed}. A request for it could be served by either.",
        expected="each name belongs to one profile",
        observed=listed,
        evidence="ids and aliases of all profiles",
        fixes=fixes if len(free) < len(case.profile.serving.aliases) else (),
    )


RULES = (alias_taken,)
