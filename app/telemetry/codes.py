"""Numbers that stand for words in the request table.

Append only: a number once given keeps its meaning for ever, because rows on disk hold it. A word that is given up
keeps its number here.
"""

from collections.abc import Mapping

_UNKNOWN = "unknown"


class Codes:
    """One list of words and their numbers, both ways. ValueError where a number is given twice."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers: Mapping[str, int] = dict(numbers)
        self._words = {number: word for word, number in numbers.items()}
        if len(self._words) != len(self.numbers):
            raise ValueError("two words share a number")

    def encode(self, word: str) -> int:
        """The number of a word. KeyError where it has none yet: append it here."""
        return self.numbers[word]

    def decode(self, number: int) -> str:
        """The word of a number; `unknown` for one that a newer version wrote."""
        return self._words.get(number, _UNKNOWN)


ENDPOINTS = Codes(
    {
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
)

CATEGORIES = Codes(
    {
        "multi_turn": 1,
        "translation": 2,
        "summarization": 3,
        "qa": 4,
        "math_reasoning": 5,
        "rag": 6,
        "code": 7,
        "other": 8,
    }
)

OUTCOMES = Codes(
    {
        "completed": 1,
        "rejected": 2,
        "upstream_error": 3,
        "upstream_failed": 4,
        "client_gone": 5,
        "cancelled": 6,
    }
)
