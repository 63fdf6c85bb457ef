"""`model: "auto"`: which profile a request goes to where it names none of its own. Pure.

Among those that can take the request: what is loaded before what is not, then the fastest for its category by what was
recorded. A category with few requests says little, so its speed is drawn towards that of all requests of the profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.errors import NoProfileFits
from app.proxy.categories import Category

AUTO: Final = "auto"
# So many requests of a category weigh as much as all that is known of the profile beside them.
_PRIOR_REQUESTS: Final = 10.0
# Seldom does a token take fewer bytes of a request: an estimate on the safe side for what fits into a context.
BYTES_PER_TOKEN: Final = 3.0


class Purpose(StrEnum):
    """What a server does: with the flags for vectors llama-server does nothing else."""

    GENERATION = "generation"
    EMBEDDINGS = "embeddings"
    RANKING = "ranking"


_EMBEDDING_FLAGS: Final = frozenset({"--embedding", "--embeddings"})
_RANKING_FLAGS: Final = frozenset({"--rerank", "--reranking"})


def purpose_of(flags: Sequence[str]) -> Purpose:
    """What a server with these flags does."""
    if not _RANKING_FLAGS.isdisjoint(flags):
        return Purpose.RANKING
    return Purpose.GENERATION if _EMBEDDING_FLAGS.isdisjoint(flags) else Purpose.EMBEDDINGS


@dataclass(frozen=True, slots=True)
class Speed:
    """Counts of recorded requests: tokens after the first of each, and the seconds they took."""

    requests: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float | None:
        """Tokens per second; None where nothing was recorded."""
        return self.tokens / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A profile that may be chosen. `context_per_slot` is None where it is not known before a launch.

    `is_blocked` where a start would be refused because it failed before; `purpose` is the one that it was set up for.
    """

    profile_id: str
    is_ready: bool
    is_blocked: bool = False
    context_per_slot: int | None = None
    has_projector: bool = False
    purpose: Purpose = Purpose.GENERATION
    overall: Speed = Speed()
    by_category: Mapping[Category, Speed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request needs; `tokens` estimates its prompt and the answer that it asks for."""

    category: Category
    tokens: int = 0
    has_images: bool = False
    has_sound: bool = False
    purpose: Purpose = Purpose.GENERATION


@dataclass(frozen=True, slots=True)
class Choice:
    """A profile and why. `reason` is one of a few, for rows; `detail` has figures too, for a header."""

    profile_id: str
    reason: str
    detail: str
    is_auto: bool = False


def choose_auto(wanted: Wanted, candidates: Sequence[Candidate]) -> Choice:
    """The best candidate. Raises NoProfileFits that says why none will do."""
    able = [each for each in candidates if _lacks(wanted, each) is None]
    if not able:
        reasons = "; ".join(f"{each.profile_id}: {_lacks(wanted, each)}" for each in candidates) or "there are none"
        message = f'no profile can take this request for "auto": {reasons}'
        raise NoProfileFits(message, recorded=message.replace(f" for about {wanted.tokens}", ""))
    loaded = [each for each in able if each.is_ready]
    rates = {each.profile_id: estimated_rate(wanted.category, each) for each in loaded or able}
    best = max(rates, key=lambda profile_id: (rates[profile_id] or 0.0, _reversed(profile_id)))
    reason = f"auto: {_why(list(rates.values()))}, {'of those loaded' if loaded else 'none loaded'}"
    rate = rates[best]
    speed = "" if rate is None else f" ({rate:.1f} tokens/s for {wanted.category.value})"
    return Choice(best, reason, f"{reason}{speed}", is_auto=True)


def _why(rates: Sequence[float | None]) -> str:
    """Nobody is the fastest of one."""
    if len(rates) == 1:
        return "the only one"
    known = len(rates) - rates.count(None)
    return "fastest" if known > 1 else "the only one with a speed" if known else "no speed recorded"


def estimated_rate(category: Category, candidate: Candidate) -> float | None:
    """Tokens per second for a category, drawn towards the profile's overall figure while samples are few."""
    overall, own = candidate.overall.rate, candidate.by_category.get(category, Speed())
    if own.rate is None:
        return overall
    if overall is None:
        return own.rate
    return (own.requests * own.rate + _PRIOR_REQUESTS * overall) / (own.requests + _PRIOR_REQUESTS)


def _lacks(wanted: Wanted, candidate: Candidate) -> str | None:
    if candidate.is_blocked:
        return "it does not start"
    if wanted.purpose is not candidate.purpose:
        return f"it is for {candidate.purpose.value}, not for {wanted.purpose.value}"
    if (wanted.has_images or wanted.has_sound) and not candidate.has_projector:
        return "it has no projector for images and sound"
    if candidate.context_per_slot is not None and wanted.tokens > candidate.context_per_slot:
        return f"its context of {candidate.context_per_slot} tokens is too short for about {wanted.tokens}"
    return None


def _reversed(text: str) -> tuple[int, ...]:
    """Of equals the first in the alphabet."""
    return tuple(-ord(character) for character in text)
