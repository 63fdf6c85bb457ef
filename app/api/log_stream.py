"""GET /profiles/{id}/logs/stream: what a profile's engines print, as it comes, over all its lives."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic_core import to_json

from app.api.event_stream import SILENCE_SECONDS, After, EventStream, LastEventId, frame, frames, missed_frame
from app.feed import Entry
from app.identifiers import id_text
from app.instances.output_feeds import LifeBegan, OutputFeeds

StreamTail = Annotated[
    int, Query(ge=0, le=2000, description="how many of the last lines of the newest instance come first")
]


def router(
    outputs: OutputFeeds, demand_profile: Callable[[str], object], *, silence_seconds: float = SILENCE_SECONDS
) -> APIRouter:
    """Routes over the feeds; `demand_profile` raises ProfileNotFound for an id that is none."""
    routes = APIRouter(tags=["instances"])

    @routes.get("/profiles/{profile_id}/logs/stream", response_class=EventStream, status_code=200)
    async def log_stream(
        profile_id: str, tail: StreamTail = 2000, after: After = None, last_event_id: LastEventId = None
    ) -> EventStream:
        """Server-sent events: one for each line, with the line as its data.

        An event `instance` says whose lines follow, at the beginning and at each new life; a profile that has not been
        started yet is waited for. `Last-Event-ID` or `after` resumes; an event `missed` says how many lines are gone.
        """
        demand_profile(profile_id)
        resumed = last_event_id if last_event_id is not None else after
        place = outputs.tail(profile_id, tail) if resumed is None else resumed

        def life_at(sequence: int) -> bytes:
            life = outputs.life_at(profile_id, sequence)
            return b"" if life is None else _life_frame(life, sequence)

        return EventStream(
            frames(
                outputs.read(profile_id, place),
                _shown,
                # The lines that went missing may have been those of an earlier life.
                show_missed=lambda missed: missed_frame(missed) + life_at(missed.sequence),
                first=life_at(place) if resumed is None else b"",
                silence_seconds=silence_seconds,
            )
        )

    return routes


def _shown(entry: Entry[str | LifeBegan]) -> bytes:
    if isinstance(entry.value, LifeBegan):
        return _life_frame(entry.value.instance_id, entry.sequence)
    return frame(entry.value, sequence=entry.sequence)


def _life_frame(instance_id: int, sequence: int) -> bytes:
    return frame(to_json({"instance_id": id_text(instance_id)}), sequence=sequence, name="instance")
