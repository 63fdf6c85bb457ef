"""Acceptance from counts: rates are always computed, never stored."""

from collections.abc import Sequence


def acceptance_rate(draft_tokens: int | None, accepted_tokens: int | None) -> float | None:
    """Accepted ÷ draft tokens; None where nothing was drafted or nothing was reported."""
    if not draft_tokens or accepted_tokens is None:
        return None
    return accepted_tokens / draft_tokens


def mean_acceptance_length_estimate(generated_tokens: int | None, accepted_tokens: int | None) -> float | None:
    """Tokens per verification step, bonus token included, from one response's counts.

    The response does not say how many drafts there were: each step yields its accepted tokens and one more, so
    steps ≈ generated - accepted. An estimate: steps without a draft count too.
    """
    if generated_tokens is None or accepted_tokens is None:
        return None
    verification_steps = generated_tokens - accepted_tokens
    return generated_tokens / verification_steps if verification_steps > 0 else None


def generation_rate(generated_tokens: int | None, generation_seconds: float | None) -> float | None:
    """Generation tokens/s as the engine counts them: its clock starts with the first token, which is free."""
    if generated_tokens is None or not generation_seconds or generated_tokens < 2:
        return None
    return (generated_tokens - 1) / generation_seconds


def mean_acceptance_length(drafts: int | None, accepted_tokens: int | None) -> float | None:
    """Tokens per draft, bonus token included: 1 + accepted ÷ drafts. Exact; None where there was no draft."""
    if not drafts or accepted_tokens is None:
        return None
    return 1 + accepted_tokens / drafts


def acceptance_rate_by_position(drafts: int | None, accepted_by_position: Sequence[int] | None) -> list[float] | None:
    """For each position the share of drafts whose token there was accepted; None where there was no draft.

    Drafts that were shorter count as well: their token there was not accepted.
    """
    if not drafts or accepted_by_position is None:
        return None
    return [accepted / drafts for accepted in accepted_by_position]
