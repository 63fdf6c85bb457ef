"""GET /events: everything that happens, as server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.event_feed import EventName, ToldEvent
from app.api.event_stream import SILENCE_SECONDS, After, EventStream, LastEventId, frame, frames
from app.api.request_filters import only_these
from app.feed import Entry, Feed
from app.telemetry.queries import QueryInvalid


def router(feed: Feed[ToldEvent], *, silence_seconds: float = SILENCE_SECONDS) -> APIRouter:
    """What `feed` holds and gets."""
    routes = APIRouter(tags=["events"])

    @routes.get("/events", dependencies=[only_these("types", "after")], response_class=EventStream, status_code=200)
    async def events(
        types: Annotated[str | None, Query(description="names of events joined by commas; without it all")] = None,
        after: After = None,
        last_event_id: LastEventId = None,
    ) -> EventStream:
        """Server-sent events from now on, or after `Last-Event-ID`.

        Ids rise, also over restarts of the service. An event `missed` says how many events since the given id are no
        longer kept, of whatever name; null where the service has restarted since and nobody can say.
        """
        chosen = frozenset(EventName) if types is None else _names(types)

        def show(entry: Entry[ToldEvent]) -> bytes:
            told = entry.value
            return frame(told.data, sequence=entry.sequence, name=told.name) if told.name in chosen else b""

        reader = feed.read(last_event_id if last_event_id is not None else after)
        return EventStream(frames(reader, show, silence_seconds=silence_seconds))

    return routes


def _names(types: str) -> frozenset[EventName]:
    names = [name.strip() for name in types.split(",") if name.strip()]
    known = [name.value for name in EventName]
    for name in names:
        if name not in known:
            raise QueryInvalid("types", f"there is no event {name!r}; known are {', '.join(known)}")
    if not names:
        raise QueryInvalid("types", f"name events, joined by commas; known are {', '.join(known)}")
    return frozenset(map(EventName, names))
