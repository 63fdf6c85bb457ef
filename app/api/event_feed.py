"""EventFeed: what happens in the service, as GET /events tells it."""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from pydantic_core import to_json

from app.api.finished_request import finished_request
from app.api.resources import InstanceResource
from app.events import EventBus
from app.feed import Feed
from app.identifiers import id_text
from app.instances.facts import FindingRaised, InstanceDegraded, InstanceLoadProgressed, ResidencyEvicted
from app.instances.record import InstanceRecord
from app.instances.state import InstanceStateChanged
from app.proxy.observer import RequestFinished

_FEED_ENTRIES = 4096


class EventName(StrEnum):
    """The names of events."""

    INSTANCE_STATE = "instance.state"
    INSTANCE_LOAD_PROGRESS = "instance.load_progress"
    INSTANCE_DEGRADED = "instance.degraded"
    REQUEST_FINISHED = "request.finished"
    RESIDENCY_EVICTED = "residency.evicted"
    TUNING_PROGRESS = "tuning.progress"
    FINDING = "finding"


class ToldEvent:
    """One event of the feed. Its JSON is made when somebody reads it, and once."""

    __slots__ = ("_data", "_describe", "name")

    def __init__(self, name: EventName, describe: Callable[[], object]) -> None:
        self.name = name
        self._describe = describe
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The JSON of the resource."""
        if self._data is None:
            self._data = to_json(self._describe())
        return self._data


class EventFeed:
    """Hears the bus and numbers what it hears, for any number of readers.

    `newest` gives the newest life of a profile as it stands; an event about an instance carries it as it was then.
    """

    def __init__(
        self,
        newest: Callable[[str], InstanceRecord | None],
        *,
        capacity: int = _FEED_ENTRIES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._newest = newest
        self.feed: Feed[ToldEvent] = Feed(capacity, clock)

    def subscribe(self, bus: EventBus) -> None:
        """Hear of all that is told."""
        bus.subscribe(InstanceStateChanged, self._on_state)
        bus.subscribe(InstanceLoadProgressed, self._on_progress)
        bus.subscribe(InstanceDegraded, self._on_degraded)
        bus.subscribe(RequestFinished, self._on_request)
        bus.subscribe(ResidencyEvicted, self._on_evicted)
        bus.subscribe(FindingRaised, self._on_finding)

    def tell(self, name: EventName, describe: Callable[[], object]) -> None:
        """Add an event. `describe` gives the value to be shown as JSON, of what cannot change any more; maybe later."""
        self.feed.publish(ToldEvent(name, describe))

    def close(self) -> None:
        """End every stream: the service stops."""
        self.feed.close()

    def _on_state(self, event: InstanceStateChanged) -> None:
        more = {"state": event.state.value, "reason": event.reason}
        self._tell_of_instance(EventName.INSTANCE_STATE, event.profile_id, event.instance_id, more)

    def _on_progress(self, event: InstanceLoadProgressed) -> None:
        more = {"load_progress": {"stage": event.stage, "fraction": event.fraction, "seconds": event.seconds}}
        self._tell_of_instance(EventName.INSTANCE_LOAD_PROGRESS, event.profile_id, event.instance_id, more)

    def _on_degraded(self, event: InstanceDegraded) -> None:
        more = {"degradations": list(event.degradations), "findings": event.findings}
        self._tell_of_instance(EventName.INSTANCE_DEGRADED, event.profile_id, event.instance_id, more)

    def _tell_of_instance(self, name: EventName, profile_id: str, instance_id: int, more: Mapping[str, Any]) -> None:
        record = self._newest(profile_id)
        if record is not None and record.id != instance_id:
            record = None
        self.tell(name, partial(_instance, record, profile_id, instance_id, more))

    def _on_request(self, event: RequestFinished) -> None:
        self.tell(EventName.REQUEST_FINISHED, partial(finished_request, event))

    def _on_evicted(self, event: ResidencyEvicted) -> None:
        self.tell(EventName.RESIDENCY_EVICTED, partial(_evicted, event))

    def _on_finding(self, event: FindingRaised) -> None:
        self.tell(EventName.FINDING, lambda: event)


def _instance(
    record: InstanceRecord | None, profile_id: str, instance_id: int, more: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The resource; of a life that nobody knows any more what the event itself says."""
    known: Mapping[str, Any] = {"id": id_text(instance_id), "profile_id": profile_id}
    if record is not None:
        known = InstanceResource.of(record).model_dump()
    return {**known, **more}


def _evicted(event: ResidencyEvicted) -> Mapping[str, Any]:
    return {
        "profile_id": event.profile_id,
        "evicted_instance_ids": [id_text(number) for number in event.evicted_instance_ids],
        "evicted_profile_ids": event.evicted_profile_ids,
        "freed_seconds": event.freed_seconds,
    }
