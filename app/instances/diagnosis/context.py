"""The context that a slot really has."""

from app import findings
from app.findings import Finding, Fix
from app.instances.diagnosis.changes import changing
from app.instances.evidence import Evidence, slots_of


def context_smaller_than_asked(evidence: Evidence) -> Finding | None:
    """A slot has fewer tokens than the profile asks for, as a rule because the model was trained for fewer.

    The engine rounds up, so any less is less. Of a pool a slot never shows more than the trained length; where all
    slots together can use the whole pool, nothing is missing.
    """
    profile, resolved, slots = evidence.launch.profile, evidence.launch.resolved, slots_of(evidence)
    has, asked = _context_per_slot(evidence), resolved.context_per_slot
    if has is None or has >= asked:
        return None
    if profile.context.unified_kv and slots > 1 and has * slots >= resolved.context_size:
        return None
    return findings.warning(
        "context-smaller-than-asked",
        f"A slot has {has:,} tokens, and the profile asks for {asked:,}: longer requests are refused.",
        expected=f"{asked:,} tokens for each slot",
        observed=f"{has:,}",
        evidence="/slots of the engine",
        fixes=changing(profile, [Fix("Ask for what there is", {"context": {"size": has * slots}})]),
    )


def slots_share_context(evidence: Evidence) -> Finding | None:
    """Slots over one pool: each shows the whole context, and when the pool is full all running requests fail."""
    profile, slots, has = evidence.launch.profile, slots_of(evidence), _context_per_slot(evidence)
    told = evidence.measured.unified_kv if evidence.measured else None
    is_unified = profile.context.unified_kv if told is None else told
    pool = evidence.launch.resolved.context_size
    if not is_unified or slots == 1 or has is None or has * slots <= pool:
        return None
    return findings.warning(
        "slots-share-context",
        f"{slots} slots show {has:,} tokens each and share one pool of {pool:,}: when it is full, every running "
        "request fails with `Context size has been exceeded`.",
        expected=f"a pool of {has * slots:,} tokens, or slots of their own",
        observed=f"one pool of {pool:,}",
        evidence="/slots of the engine; " + ("context.unified_kv" if told is None else "its output"),
        fixes=changing(
            profile,
            [
                Fix(f"A pool for {slots} full requests", {"context": {"size": has * slots}}),
                Fix(
                    f"Slots of their own with {has:,} tokens each",
                    {"context": {"unified_kv": False, "size": has * slots}},
                ),
            ],
        ),
    )


def _context_per_slot(evidence: Evidence) -> int | None:
    measured = evidence.measured.context_per_slot if evidence.measured else None
    return measured if evidence.context_per_slot is None else evidence.context_per_slot


RULES = (context_smaller_than_asked, slots_share_context)
