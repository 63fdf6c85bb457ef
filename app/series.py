"""The series of the service: what each is read from."""

from collections.abc import Callable, Collection, Mapping

from app import __version__
from app.database import Database
from app.events import EventBus
from app.instances.samples import Sampler
from app.instances.supervisor import Supervisor
from app.inventory.host import host_memory_now
from app.llama_server.probe import EngineProbe
from app.metrics.series import Series, Sources
from app.metrics.writing import rows_of
from app.profiles.catalog import ProfileCatalog
from app.proxy.relay import Relay
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.speedups import speedup_ratios


def series_of(
    bus: EventBus,
    catalog: ProfileCatalog,
    probe: EngineProbe,
    database: Database,
    recorder: Recorder,
    supervisor: Supervisor,
    sampler: Sampler,
    relay: Relay,
    paused: Callable[[], Mapping[str, bool]],
    refused: Callable[[], Mapping[str, int]],
    queue_limit: int,
) -> Series:
    """The series, which hear of what happens from now on."""

    def profiles() -> Collection[str]:
        return [stored.profile.id for stored in catalog.list()]

    def methods() -> Mapping[str, str]:
        stored = [each.profile for each in catalog.list()]
        return {each.id: each.speculation.method.value for each in stored if each.speculation.methods}

    def queue_limits() -> Mapping[str, int]:
        return {stored.profile.id: stored.profile.serving.queue_limit for stored in catalog.list()}

    series = Series(
        Sources(
            version=__version__,
            engine_build=lambda: probe.known.build if probe.known else None,
            profiles=profiles,
            methods=methods,
            paused=paused,
            speedups=lambda since: speedup_ratios(database, RequestFilters(since=since)),
            records=supervisor.roster.records,
            queued=supervisor.roster.queued,
            queue_limits=queue_limits,
            queue_limit=queue_limit,
            active=lambda: [observation.profile_id for observation in relay.active()],
            devices=lambda: probe.known.devices if probe.known else (),
            looks=sampler.newest,
            reserved=lambda: supervisor.others("").reserved,
            host=host_memory_now,
            database=database.path,
            rows=lambda: rows_of(database),
            submit=lambda: database.submit(_nothing),
            backlog=lambda: database.backlog,
            lost_rows=lambda: recorder.lost_rows,
            spilled_rows=lambda: recorder.spilled_rows,
            replayed_rows=lambda: recorder.replayed_rows,
            refused=refused,
        )
    )
    series.subscribe(bus)
    return series


def _nothing(_: object) -> None:
    """Work for the writer whose time says how far behind it is."""
