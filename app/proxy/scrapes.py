"""Who reads an engine's own metrics through the relay."""

from dataclasses import dataclass

from app.events import Event


@dataclass(frozen=True, slots=True)
class EngineScraped(Event):
    """Somebody reads the metrics of the engine behind a profile. That begins its averages anew, for every reader."""

    profile_id: str


def is_scrape(target: bytes) -> bool:
    """Whether a read of this path of an engine reads its metrics."""
    return target.partition(b"?")[0] == b"/metrics"
