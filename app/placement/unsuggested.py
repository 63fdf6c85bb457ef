"""Why something is not suggested, as findings. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from app import findings
from app.findings import Finding, Severity
from app.inventory.models import ModelFile
from app.placement.amounts import mib
from app.placement.budgets import PlacementPlan
from app.placement.methods import UsableMethod
from app.placement.search import Candidate

_EXPECTED = "a layout that every device and the host have room for"


def nothing_fits(nearest: Candidate | None) -> Finding:
    """No layout has room: what the smallest one lacks, and where."""
    layout, lacking = _layout(nearest), _lacking(nearest)
    return findings.error(
        "nothing-fits",
        f"Nothing that was tried fits. {layout}{lacking or 'no layout of this model can be planned here'}. A smaller "
        "file of the model would fit, or a shorter context, or a machine with more memory.",
        expected=_EXPECTED,
        observed=lacking or "none",
        evidence="the plan of the smallest layout that was tried",
    )


def no_room_with(method: UsableMethod, nearest: Candidate | None) -> Finding:
    """The model fits, and nowhere beside this drafter."""
    lacking = _lacking(nearest)
    drafter = "the draft model" if method.has_draft_model else "the target's own MTP heads"
    return findings.warning(
        "nothing-fits",
        f"Nothing that was tried has room for {drafter}. {_layout(nearest)}{lacking or 'it cannot be planned here'}.",
        expected=_EXPECTED,
        observed=lacking or "none",
        evidence="the plan of the smallest layout that was tried",
    )


def no_layers(target: ModelFile) -> Finding:
    """A file that can be read and holds no model."""
    return findings.error(
        "nothing-fits",
        f"{target.path.name} names no layers, so there is nothing that could be placed.",
        expected="a model with layers",
        observed=f"architecture {target.architecture}, 0 layers",
        evidence="the file's header",
    )


def as_warnings(found: Iterable[Finding]) -> list[Finding]:
    """The same, of something that is left out beside what is suggested: it refuses nothing."""
    return [replace(one, severity=Severity.WARNING, overridable=False) for one in found]


def without_repeats(found: Iterable[Finding]) -> list[Finding]:
    """The first of each rule and message."""
    return list({(one.rule, one.message): one for one in reversed(list(found))}.values())[::-1]


def _layout(nearest: Candidate | None) -> str:
    if nearest is None:
        return ""
    return f"The smallest layout ({nearest.reason[0].lower()}{nearest.reason[1:]}): "


def _lacking(nearest: Candidate | None) -> str:
    """The fullest place first."""
    if nearest is None:
        return ""
    planned = nearest.trial.planned
    if planned.impossible:
        return "; ".join(planned.impossible)
    short = sorted(_short(planned), reverse=True)
    return "; ".join(
        f"{name} lacks {mib(short_bytes)} of the {mib(needed_bytes)} that are needed there"
        for short_bytes, name, needed_bytes in short
    )


def _short(planned: PlacementPlan) -> Iterable[tuple[int, str, int]]:
    for budget in planned.devices:
        if not budget.fits:
            yield -budget.headroom_bytes, budget.name, budget.required_bytes
    left = planned.host.resident_headroom_bytes
    if left is not None and left < 0:
        yield -left, "the host", planned.host.resident_bytes
