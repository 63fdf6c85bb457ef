"""The numbers on disk: pinned, because rows of years ago hold them."""

import pytest

from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome
from app.telemetry.codes import ENDPOINTS, OUTCOMES, Codes


def test_every_number_is_pinned() -> None:
    """Only ever append here: a changed number would change the meaning of old rows."""
    assert ENDPOINTS.numbers == {
        "chat_completions": 1,
        "completions": 2,
        "responses": 3,
        "messages": 4,
        "count_tokens": 5,
        "embeddings": 6,
        "rerank": 7,
        "completion": 8,
        "infill": 9,
        "tokenize": 10,
        "detokenize": 11,
        "apply_template": 12,
        "props": 13,
        "slots": 14,
        "lora_adapters": 15,
        "upstream": 16,
    }
    assert OUTCOMES.numbers == {
        "completed": 1,
        "rejected": 2,
        "upstream_error": 3,
        "upstream_failed": 4,
        "client_gone": 5,
        "cancelled": 6,
    }


def test_whatever_the_relay_tells_has_a_number() -> None:
    assert set(Endpoint) <= ENDPOINTS.numbers.keys()
    assert set(Outcome) <= OUTCOMES.numbers.keys()


@pytest.mark.parametrize("codes", [ENDPOINTS, OUTCOMES])
def test_decoding_undoes_encoding(codes: Codes) -> None:
    assert all(codes.decode(codes.encode(word)) == word for word in codes.numbers)


def test_a_number_of_a_newer_version_is_unknown() -> None:
    assert OUTCOMES.decode(99) == "unknown"


def test_two_words_cannot_share_a_number() -> None:
    with pytest.raises(ValueError, match="share"):
        Codes({"one": 1, "other": 1})
