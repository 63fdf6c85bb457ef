"""All series together: what they are read from, and who hears of what."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from app.events import EventBus
from app.instances.evidence import DeviceSample
from app.instances.facts import ProfileRestarted, ResidencyEvicted, StartNotBegun, StartRefused
from app.instances.record import InstanceRecord
from app.instances.state import InstanceStateChanged
from app.instances.windows import AcceptanceWindowClosed
from app.inventory.devices import Device, Host
from app.metrics.acceptance import AcceptanceCollector
from app.metrics.awake import Awake
from app.metrics.categories import CategoriesCollector
from app.metrics.collectors import AccessCollector, MetricsRegistry, ServiceCollector, SpillCollector
from app.metrics.devices import DevicesCollector
from app.metrics.in_flight import InFlightCollector
from app.metrics.instances import InstancesCollector
from app.metrics.instruments import Instruments
from app.metrics.queues import QueuesCollector
from app.metrics.speculation import SpeculationCollector
from app.metrics.speedups import SpeedupsCollector
from app.metrics.starts import StartsCollector
from app.metrics.writing import DatabaseCollector
from app.profiles.catalog import ProfileDeleted
from app.proxy.observer import RequestFinished


def _zero() -> int:
    return 0


def _nothing(_: datetime) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, slots=True)
class Sources:
    """What a scrape asks, from a thread of its own; each says nothing unless it is given.

    `profiles` are the ids of all profiles, `methods` the method of each that speculates; `active` has the profile of
    each request in flight. `speedups` is what `SpeedupsCollector` reads, outside of scrapes, and `paused` that of
    `SpeculationCollector`. `queued`, `queue_limits` and `queue_limit` are those of `QueuesCollector`; `looks`,
    `devices`, `reserved` and `host` those of `DevicesCollector`; `database`, `rows` and `submit` those of
    `DatabaseCollector`.
    """

    version: str = ""
    engine_build: Callable[[], str | None] = lambda: None
    profiles: Callable[[], Collection[str]] = tuple
    methods: Callable[[], Mapping[str, str]] = dict
    speedups: Callable[[datetime], Mapping[str, float]] = _nothing
    paused: Callable[[], Mapping[str, bool]] = dict
    records: Callable[[], Sequence[InstanceRecord]] = tuple
    queued: Callable[[str], int] = lambda _: 0
    queue_limits: Callable[[], Mapping[str, int]] = dict
    queue_limit: int = 0
    active: Callable[[], Iterable[str | None]] = tuple
    devices: Callable[[], Sequence[Device]] = tuple
    looks: Callable[[], Mapping[str, DeviceSample]] = dict
    reserved: Callable[[], Mapping[str, int]] = dict
    host: Callable[[], Host] = Host
    database: Path = Path("paceline.db")
    rows: Callable[[], Mapping[str, int]] = dict
    submit: Callable[[], "Future[None]"] = Future
    backlog: Callable[[], int] = _zero
    lost_rows: Callable[[], int] = _zero
    spilled_rows: Callable[[], int] = _zero
    replayed_rows: Callable[[], int] = _zero
    refused: Callable[[], Mapping[str, int]] = dict


class Series:
    """The registry with every series in it."""

    def __init__(self, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = MetricsRegistry()
        self.awake = Awake(clock)
        self.instruments = Instruments(self.registry, sources.profiles, self.awake)
        self._speculation = SpeculationCollector(sources.methods, self.awake, sources.paused)
        self._acceptance = AcceptanceCollector(sources.methods, self.awake)
        self._categories = CategoriesCollector(self.awake)
        self._instances = InstancesCollector(sources.records, sources.profiles)
        self._starts = StartsCollector(sources.profiles)
        self.speedups = SpeedupsCollector(sources.speedups, sources.methods, self.awake)
        self._database = DatabaseCollector(sources.database, sources.rows, sources.submit, clock=clock)
        for collector in (
            self._categories,
            InFlightCollector(sources.active, sources.profiles),
            self._speculation,
            self._acceptance,
            self.speedups,
            self._instances,
            QueuesCollector(sources.queue_limits, sources.queue_limit, sources.queued, sources.records),
            self._starts,
            DevicesCollector(sources.devices, sources.looks, sources.reserved, sources.records, sources.host, clock),
            self._database,
            SpillCollector(sources.spilled_rows, sources.replayed_rows),
            AccessCollector(sources.refused),
            ServiceCollector(sources.version, sources.engine_build, sources.backlog, sources.lost_rows),
        ):
            self.registry.register(collector)

    async def run(self) -> None:
        """What has to go on beside, until cancelled."""
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self._database.run())
            jobs.create_task(self.speedups.run())

    def subscribe(self, bus: EventBus) -> None:
        """Hear of what is counted as it happens."""
        bus.subscribe(RequestFinished, self.instruments.on_request_finished)
        bus.subscribe(RequestFinished, self._categories.on_request_finished)
        bus.subscribe(RequestFinished, self.speedups.on_request_finished)
        bus.subscribe(InstanceStateChanged, self.instruments.on_instance_state_changed)
        bus.subscribe(InstanceStateChanged, self._starts.on_instance_state)
        bus.subscribe(StartRefused, self._starts.on_refused)
        bus.subscribe(StartNotBegun, self._starts.on_not_begun)
        bus.subscribe(ProfileRestarted, self._starts.on_restarted)
        bus.subscribe(ResidencyEvicted, self._instances.on_evicted)
        bus.subscribe(AcceptanceWindowClosed, self._speculation.on_window)
        bus.subscribe(AcceptanceWindowClosed, self._acceptance.on_window)
        for listener in (
            *(self.instruments, self._categories, self._starts, self._instances),
            *(self._speculation, self._acceptance),
        ):
            bus.subscribe(ProfileDeleted, listener.on_profile_deleted)
