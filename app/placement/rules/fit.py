"""Rules on `fit`, with which the engine changes a launch after it was checked."""

from app import findings
from app.findings import Finding, Fix
from app.placement.case import LaunchCase
from app.placement.places import borrows_from_target
from app.placement.resolve import resolve


def fit_with_draft(case: LaunchCase) -> Finding | None:
    """The engine's fitting counts a draft under one layout and loads it under another, or does not count it."""
    methods = case.profile.speculation.methods
    if not case.profile.placement.fit or not methods:
        return None
    unseen = ""
    if case.draft is not None and borrows_from_target(case.draft):
        unseen = f" {case.draft.path.name} has no head of its own, so its memory is not counted at all."
    return findings.warning(
        "fit-with-draft",
        "fit lets the engine change layers, split and experts after this check, and speculation is then not what was "
        f"checked: a draft follows the split that was found for the target.{unseen} Builds before the joint fit "
        "ignored drafts altogether.",
        expected="fit false and explicit values",
        observed=f"fit true with {', '.join(methods)}",
        evidence="placement.fit, speculation.method",
        # Explicit split and experts come from the memory plan.
        fixes=[_explicit(case)],
    )


def fit_needs_context(case: LaunchCase) -> Finding | None:
    """Fitting may shrink a context that nobody named: what the server then serves would be chance."""
    # Without the target's header what it would be is not known.
    if not case.profile.placement.fit or case.profile.context.size is not None or case.target is None:
        return None
    size = resolve(case).context_size
    return findings.error(
        "fit-needs-context",
        "fit is on and the profile names no context size: what fits would decide how long requests may be.",
        expected="context.size",
        observed="no size",
        evidence="the profile",
        fixes=[Fix(f"Say what it would be: {size} tokens", {"context": {"size": size}}), _explicit(case)],
    )


def _explicit(case: LaunchCase) -> Fix:
    off: dict[str, object] = {"placement": {"fit": False}}
    if case.profile.context.size is None and case.target is None:
        return Fix("Turn fit off", off)
    return Fix("Turn fit off and say the values", {**off, "context": {"size": resolve(case).context_size}})


RULES = (fit_with_draft, fit_needs_context)
