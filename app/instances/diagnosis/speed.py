"""Whether speculation pays, by the counts of both sides."""

from typing import Final

from app import findings
from app.findings import Finding, Fix
from app.instances.diagnosis.changes import WITHOUT_SPECULATION, changing
from app.instances.evidence import Baseline, Evidence, Tally

# Each side: rates of single requests scatter with context and neighbours, and ten of them are steady within 5 %.
REQUESTS_LEAST: Final = 10
TOKENS_LEAST: Final = 1000
# Two series of the same launch differ by a few percent; below this it is speculation that costs.
SLOWER_RATIO: Final = 0.95


def rate_of(counted: Tally | Baseline) -> float | None:
    """Generation tokens/s. The engine's clock starts with the first token of each request, which therefore is free."""
    timed_tokens = counted.generated_tokens - counted.requests
    if timed_tokens <= 0 or counted.generation_seconds <= 0:
        return None
    return timed_tokens / counted.generation_seconds


def slower_than_baseline(evidence: Evidence) -> Finding | None:
    """Speculation that costs more than it gives, where a profile without it was measured on the same target.

    Silent until both sides have `REQUESTS_LEAST` requests and `TOKENS_LEAST` generated tokens.
    """
    baseline, tally, profile = evidence.baseline, evidence.tally, evidence.launch.profile
    if baseline is None or not profile.speculation.methods or not is_enough(tally) or not is_enough(baseline):
        return None
    rate, plain = rate_of(tally), rate_of(baseline)
    if rate is None or plain is None or rate >= SLOWER_RATIO * plain:
        return None
    drafted = evidence.launch.resolved.draft_tokens_max
    shorter = [Fix("Shorter drafts", {"speculation": {"draft_tokens_max": drafted // 2}})] if drafted > 1 else []
    listed = ", ".join(profile.speculation.methods)
    return findings.warning(
        "slower-than-baseline",
        f"With {listed} it generates {rate:.1f} tokens/s, and {baseline.profile_id} without speculation {plain:.1f}: "
        f"{rate / plain:.2f} of that. Speculation costs more than it gives.",
        expected=f"at least {SLOWER_RATIO} of {plain:.1f} tokens/s",
        observed=f"{rate:.1f} tokens/s, a ratio of {rate / plain:.2f}",
        evidence=f"{_counts(tally)} of this instance; {_counts(baseline)} of {baseline.profile_id}, on the same "
        "devices and build. More requests at once make both slower",
        fixes=changing(
            profile,
            [
                Fix("No speculation", WITHOUT_SPECULATION),
                *([] if profile.speculation.method.is_ngram else shorter),
            ],
        ),
    )


def is_enough(counted: Tally | Baseline) -> bool:
    """Whether it can be compared."""
    return counted.requests >= REQUESTS_LEAST and counted.generated_tokens >= TOKENS_LEAST


def _counts(counted: Tally | Baseline) -> str:
    return f"{counted.requests:,} requests with {counted.generated_tokens:,} tokens"


RULES = (slower_than_baseline,)
