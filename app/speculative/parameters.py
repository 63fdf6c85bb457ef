"""Methods of speculative decoding and the longest draft that each may propose."""

from enum import StrEnum


class Method(StrEnum):
    """Who proposes the draft tokens."""

    NONE = "none"
    MTP = "mtp"
    DSPARK = "dspark"
    DFLASH = "dflash"
    EAGLE3 = "eagle3"
    DRAFT = "draft"
    NGRAM_SIMPLE = "ngram-simple"
    NGRAM_MAP_K = "ngram-map-k"
    NGRAM_MAP_K4V = "ngram-map-k4v"
    NGRAM_MOD = "ngram-mod"
    NGRAM_CACHE = "ngram-cache"

    @property
    def is_ngram(self) -> bool:
        """Proposes from text seen before, without a model."""
        return self.value.startswith("ngram-")

    @property
    def needs_draft_model(self) -> bool:
        """Cannot work without a second file."""
        return self in (Method.DRAFT, Method.DFLASH, Method.DSPARK, Method.EAGLE3)

    @property
    def takes_draft_model(self) -> bool:
        """May be given a second file (MTP heads can also come from one)."""
        return self.needs_draft_model or self is Method.MTP


# What the engine uses where a profile is silent (llama.cpp build 11434); -cache has no setting.
NGRAM_MOD_LENGTH_MAX = 64
NGRAM_MOD_LENGTH_MIN = 48
NGRAM_MOD_MATCH = 24
NGRAM_LENGTH_MAX = 48
NGRAM_MATCH = 12
NGRAM_MIN_HITS = 1
NGRAM_CACHE_LENGTH_MAX = 8


def longest_draft(method: Method, draft_tokens_max: int, ngram_length_max: int | None) -> int:
    """The most tokens one draft of this method can have.

    `draft_tokens_max` bounds methods with a drafter model or MTP heads, `ngram_length_max` (None: the engine's own)
    the n-gram methods.
    """
    if method is Method.NONE:
        return 0
    if method is Method.NGRAM_CACHE:
        return NGRAM_CACHE_LENGTH_MAX
    if method is Method.NGRAM_MOD:
        return NGRAM_MOD_LENGTH_MAX if ngram_length_max is None else ngram_length_max
    if method.is_ngram:
        return NGRAM_LENGTH_MAX if ngram_length_max is None else ngram_length_max
    return draft_tokens_max
