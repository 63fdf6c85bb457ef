"""Two vocabularies compared: does a token id stand for the same text in both?"""

import struct
from itertools import islice
from typing import Final

from app.inventory.gguf import ArraySummary, ValueType, iterate_strings
from app.inventory.gguf_cursor import Cursor, open_cursor
from app.inventory.models import ModelFile

# llama.cpp lets the first ids differ: they are where models keep their own special tokens.
FIRST_COMPARED_TOKEN: Final = 5

_TOKENS_KEY: Final = "tokenizer.ggml.tokens"
_LENGTH: Final = struct.Struct("<Q")
_STEP_BYTES: Final = 1 << 18


def first_different_token(one: ModelFile, other: ModelFile) -> int | None:
    """The lowest token id, from `FIRST_COMPARED_TOKEN` up, whose raw bytes differ between two models.

    None where all that both have are equal, or one has no list of tokens. Reads both files, undecoded; raises
    ModelFileMissing or ModelFileUnreadable where a file changed since its header was read.
    """
    tokens, others = _tokens(one), _tokens(other)
    if tokens is None or others is None or tokens.digest == others.digest:
        return None
    if min(tokens.count, others.count) <= FIRST_COMPARED_TOKEN:
        return None
    at_byte = _first_different_byte(one, tokens, other, others)
    return None if at_byte is None else _token_at(one, tokens, at_byte)


def _tokens(model: ModelFile) -> ArraySummary | None:
    tokens = model.header.metadata.get(_TOKENS_KEY)
    if isinstance(tokens, ArraySummary) and tokens.element_type is ValueType.STRING:
        return tokens
    return None


def _first_different_byte(one: ModelFile, tokens: ArraySummary, other: ModelFile, others: ArraySummary) -> int | None:
    """Counted from the first compared token: lengths and texts alike, so equal bytes are equal tokens."""
    with (
        open_cursor(one.header.path, tokens.offset_bytes + tokens.n_bytes) as left,
        open_cursor(other.header.path, others.offset_bytes + others.n_bytes) as right,
    ):
        remaining = min(_skip_uncompared(left, tokens), _skip_uncompared(right, others))
        compared = 0
        while remaining:
            step = min(remaining, _STEP_BYTES)
            mine, theirs = left.take(step, "the vocabulary"), right.take(step, "the vocabulary")
            if mine != theirs:
                return compared + next(at for at in range(step) if mine[at] != theirs[at])
            compared += step
            remaining -= step
    return None


def _skip_uncompared(cursor: Cursor, tokens: ArraySummary) -> int:
    """Move past the tokens that may differ; how many bytes of the array are left."""
    cursor.seek(tokens.offset_bytes)
    for _ in range(FIRST_COMPARED_TOKEN):
        cursor.take(cursor.number(_LENGTH, "a token's length"), "a token")
    return tokens.offset_bytes + tokens.n_bytes - cursor.position


def _token_at(model: ModelFile, tokens: ArraySummary, at_byte: int) -> int:
    """The id of the token that a byte belongs to."""
    end = 0
    texts = islice(iterate_strings(model.header.path, tokens), FIRST_COMPARED_TOKEN, None)
    for token, text in enumerate(texts, FIRST_COMPARED_TOKEN):
        end += _LENGTH.size + len(text)
        if at_byte < end:
            return token
    raise ValueError(f"byte {at_byte} is not in the vocabulary")
