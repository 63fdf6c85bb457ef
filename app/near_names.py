"""Which of the names that there are someone may have meant. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

# Below this words of one length and a few letters in common count as alike: `dense` and `draft`, `agent` and `absent`.
_ALIKE = 0.78
_BEGINNING_LEAST = 4


def near_names(wanted: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Up to `most` names that resemble the one that was asked for, best first; none rather than a guess.

    Case, dashes in front and the ending `.gguf` say nothing. A name that begins with all that was asked for resembles
    it, from four letters on.
    """
    asked = _bare(wanted)
    by_bare: dict[str, list[str]] = {}
    for name in names:
        by_bare.setdefault(_bare(name), []).append(name)
    alike = get_close_matches(asked, by_bare, n=most, cutoff=_ALIKE)
    begun = sorted(bare for bare in by_bare if bare.startswith(asked)) if len(asked) >= _BEGINNING_LEAST else []
    return [name for bare in dict.fromkeys((*alike, *begun)) for name in by_bare[bare]][:most]


def _bare(name: str) -> str:
    return name.lstrip("-").lower().removesuffix(".gguf")
