"""How far a load is, as the engine's own lines tell it. Pure.

At the default verbosity llama-server and the embedded engine print the same few lines of a load, and more verbose ones
print them among others:

    load_model: loading model '…'              the target's header, then its weights
    init: llama threadpool init                weights and caches are in place; the first run of the model follows
    …: loading draft model '…'                 a draft of its own
    load_model: initializing, n_slots = …      slots, speculation, chat template
    model loaded                               requests are taken

Only at verbosity 4 the warm-up has a line of its own, which comes right after the second of these.
"""

import re
from enum import StrEnum


class LoadStage(StrEnum):
    """What a loading server is at. In this order; a stage may be left out, and none comes again."""

    STARTING = "starting"
    READING_MODEL = "reading-model"
    WARMING_UP = "warming-up"
    LOADING_DRAFT = "loading-draft"
    PREPARING = "preparing"
    LOADED = "loaded"


STAGES: tuple[LoadStage, ...] = tuple(LoadStage)

# At verbosity 4 the chat template is printed too: each pattern has what the engine writes before its text.
_LINES: tuple[tuple[LoadStage, re.Pattern[str]], ...] = (
    (LoadStage.READING_MODEL, re.compile(r"\bload_model: loading model '")),
    (LoadStage.WARMING_UP, re.compile(r"\binit: llama threadpool init,|: warming up the model with an empty run")),
    (LoadStage.LOADING_DRAFT, re.compile(r": loading draft model '")),
    (LoadStage.PREPARING, re.compile(r"\bload_model: initializing, n_slots = ")),
    (LoadStage.LOADED, re.compile(r"\b(llama_server|init): model loaded$")),
)


def load_stage_of(line: str) -> LoadStage | None:
    """The stage that begins with this line, None for any other line."""
    for stage, pattern in _LINES:
        if pattern.search(line):
            return stage
    return None
