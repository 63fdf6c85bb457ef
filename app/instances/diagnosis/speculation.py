"""What became of speculation: does it run, and does the target keep what is drafted."""

from typing import Final

from app import findings
from app.findings import Finding, Fix
from app.instances.diagnosis.changes import WITHOUT_SPECULATION, changing
from app.instances.evidence import Evidence
from app.launch.report import predicted_memory
from app.placement.amounts import mib
from app.speculative.acceptance import acceptance_rate
from app.speculative.parameters import Method

# Working drafters keep 30 to 95 %; 1 to 2 % were reported of drafts made for another target. Nothing healthy is near 5.
COLLAPSED_RATE: Final = 0.05
# Enough that chance does not decide: a drafter of 20 % stays below 5 % of 200 once in ten million times.
DRAFT_TOKENS_LEAST: Final = 200
# A draft of an n-gram method is up to 64 tokens that stand or fall together, so a few drafts prove nothing.
NGRAM_DRAFT_TOKENS_LEAST: Final = 2000


def speculation_inactive(evidence: Evidence) -> Finding | None:
    """The profile asks for speculation, and the slots do not show it, or the output lists fewer methods than asked.

    The engine says that it is healthy also where its drafter failed to initialise. What the slots do not tell counts as
    inactive, unless the output tells: speculation is proven, not assumed.
    """
    asked = evidence.launch.profile.speculation.methods
    told = evidence.measured.methods if evidence.measured else None
    missing = [method.value for method in asked if told is not None and method.value not in told]
    runs = evidence.speculates or (evidence.speculates is None and told is not None)
    if not asked or (runs and not missing):
        return None
    lost = missing if runs else [method.value for method in asked]
    observed = "the slots do not tell" if evidence.speculates is None and told is None else f"no {', '.join(lost)}"
    held = _held_bytes(evidence)
    cost = "It generates no faster than its baseline" + (f", and {mib(held)} are held for drafts." if held else ".")
    return findings.warning(
        "speculation-inactive",
        f"The profile asks for {', '.join(asked)}, and the engine runs without {', '.join(lost)}: its answers do not "
        f"show that. {cost}",
        expected=", ".join(asked),
        observed=observed,
        evidence="/slots of the engine" + ("" if told is None else "; the methods that its output lists"),
        fixes=changing(
            evidence.launch.profile,
            [
                Fix("Read why in its first lines: GET /instances/{id}/logs names the drafter's error"),
                Fix("No speculation, which gives back its memory", WITHOUT_SPECULATION, effect_bytes=held),
            ],
        ),
    )


def acceptance_collapsed(evidence: Evidence) -> Finding | None:
    """The target throws nearly all drafts away: a mismatch of draft and target, which no tuning mends.

    An n-gram drafter that finds nothing to copy drafts nothing and is healthy, so those are judged by many tokens only.
    """
    methods, tally = evidence.launch.profile.speculation.methods, evidence.tally
    rate = acceptance_rate(tally.draft_tokens, tally.accepted_tokens)
    has_ngram = any(method.is_ngram for method in methods)
    least = NGRAM_DRAFT_TOKENS_LEAST if has_ngram else DRAFT_TOKENS_LEAST
    if not methods or rate is None or tally.draft_tokens < least or rate >= COLLAPSED_RATE:
        return None
    why = (
        "the text does not repeat as these methods need it"
        if all(method.is_ngram for method in methods)
        else "draft and target do not match (another base model, another training, another tokenizer)"
    )
    return findings.warning(
        "acceptance-collapsed",
        f"The target kept {tally.accepted_tokens:,} of {tally.draft_tokens:,} draft tokens ({rate:.1%}): {why}. Every "
        "draft is computed and verified for nothing, so it is slower than without.",
        expected=f"at least {COLLAPSED_RATE:.0%} once {least:,} tokens were drafted",
        observed=f"{rate:.1%}",
        evidence=f"draft counts of {tally.requests} requests to this instance",
        fixes=changing(evidence.launch.profile, [Fix("No speculation", WITHOUT_SPECULATION), *_other_drafter(methods)]),
    )


def speculation_given_up(evidence: Evidence) -> Finding | None:
    """An earlier life's drafter did not work, and the profile says that it goes on without one then."""
    if evidence.fallback_reason is None:
        return None
    return findings.warning(
        "speculation-given-up",
        f"It runs without speculation, since an earlier life was {evidence.fallback_reason} and the profile says "
        "on_degraded: baseline. A start by hand, or a change of the profile, tries speculation again.",
        expected="the speculation that the profile asks for",
        observed="none",
        evidence=f"{evidence.fallback_reason} in an earlier life of this revision",
        fixes=[
            Fix("Keep it as it is for good", WITHOUT_SPECULATION),
            Fix("Serve with what speculation there is", {"serving": {"on_degraded": "keep"}}),
        ],
    )


def _other_drafter(methods: tuple[Method, ...]) -> list[Fix]:
    if any(method.needs_draft_model for method in methods):
        return [Fix("A draft that was made for this very target")]
    return []


def _held_bytes(evidence: Evidence) -> int:
    """What the plan gives to drafts on the device that has most of it."""
    planned = predicted_memory(evidence.launch.report)
    return max(
        (sum(n_bytes for term, n_bytes in terms.items() if term.startswith("draft_")) for terms in planned.values()),
        default=0,
    )


RULES = (speculation_inactive, acceptance_collapsed, speculation_given_up)
