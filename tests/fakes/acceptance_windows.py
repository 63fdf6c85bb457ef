"""Acceptance windows as they are told, with every field that a test does not care for filled in."""

from dataclasses import replace
from typing import Any

from fakes.finished_requests import CONTEXT, INSTANCE_ID, START_SECONDS

from app.instances.windows import AcceptanceWindowClosed
from app.llama_server.counters import EngineCounters

COUNTS = EngineCounters(10, 28, 21, (9, 8, 4), 32, 2713)


def window(number: int = 0, **changes: Any) -> AcceptanceWindowClosed:
    """Fifteen seconds of the profile `gemma`; `number` counts windows, `changes` are fields of it or of its counts."""
    counts = {name: changes.pop(name) for name in list(changes) if name in EngineCounters.__dataclass_fields__}
    fields: dict[str, Any] = {
        "instance_id": INSTANCE_ID,
        "context": CONTEXT,
        "started_at_milliseconds": (START_SECONDS + 15 * number) * 1000,
        "ended_at_milliseconds": (START_SECONDS + 15 * (number + 1)) * 1000,
        "counts": replace(COUNTS, **counts),
    }
    return AcceptanceWindowClosed(**{**fields, **changes})
