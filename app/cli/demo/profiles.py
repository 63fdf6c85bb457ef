"""What the demo launches and asks. The figures it prints depend on these values and on the machine alone."""

from collections.abc import Mapping
from typing import Any

from app.cli.demo.model import MODEL_FILE

BASELINE = "gemma-baseline"
NGRAM = "gemma-ngram"
PROMPT = "In a bicycle race, riders stay close behind one another because"

_COMMON: Mapping[str, Any] = {
    "target": {"path": MODEL_FILE},
    # One thread: with as many as the machine has cores, anything else that runs stalls every step.
    "context": {"size": 2048, "threads": 1},
    # The file's own template is for chats, which this pretrained model never saw: let it continue the text.
    "extra_args": ["--chat-template", "{% for message in messages %}{{ message.content }}{% endfor %}"],
}

PROFILES: tuple[Mapping[str, Any], ...] = (
    {"id": BASELINE, "description": "Demo: no speculation, the measure of the other one.", **_COMMON},
    {
        "id": NGRAM,
        "description": "Demo: drafts from text that came before, without a draft model.",
        "speculation": {
            "method": "ngram-mod",
            # The engine's own limits, 48 to 64 tokens after a match of 24, suit long documents.
            "ngram": {"match_length": 16, "draft_length_min": 4, "draft_length_max": 32},
        },
        **_COMMON,
    },
)

_WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima".split()
_LIST = "\n".join(f"{number}. {word}" for number, word in enumerate(_WORDS, 1))


def chat_request() -> dict[str, Any]:
    """The chat completion that is streamed."""
    return {"model": BASELINE, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 48, "temperature": 0}


def list_request(profile_id: str) -> dict[str, Any]:
    """A completion whose text stands in its prompt already: the best case of n-gram drafts."""
    prompt = f"Repeat this list exactly:\n{_LIST}\n\nThe list again:\n"
    return {"model": profile_id, "prompt": prompt, "max_tokens": 128, "temperature": 0}
