"""The composition root: every collaborator is built here, and handed what it needs. Importing it has no effect."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.types import ASGIApp

from app import __version__, data_folder
from app.api import check as check_api
from app.api import devices as devices_api
from app.api import diagnosis as diagnosis_api
from app.api import events as events_api
from app.api import imports as imports_api
from app.api import instances as instances_api
from app.api import keys as keys_api
from app.api import lifecycle as lifecycle_api
from app.api import log_stream as log_stream_api
from app.api import metrics as metrics_api
from app.api import models as models_api
from app.api import presets as presets_api
from app.api import problems
from app.api import profiles as profiles_api
from app.api import relayed as relayed_api
from app.api import requests as requests_api
from app.api import suggest as suggest_api
from app.api import system as system_api
from app.api.active_requests import RelayedRequests
from app.api.description import describe
from app.api.entrance import Entrance
from app.api.event_feed import EventFeed
from app.database import Database
from app.ending import end_of_waiting, write_the_rest
from app.events import EventBus
from app.findings import Finding
from app.identifiers import TimeOrderedIds, id_text
from app.instances.archive import InstanceArchive
from app.instances.autostart import autostart
from app.instances.calibration import CalibrationBook
from app.instances.facts import FindingRaised
from app.instances.needs import Listeners
from app.instances.output_feeds import OutputFeeds
from app.instances.process import tether_words
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.supervisor import Supervisor
from app.instances.unwritten import file_of_lives
from app.inventory.model_scan import ModelScan
from app.launch.check import LaunchCheck
from app.launch.circumstances import Circumstances
from app.launch.dry_run import DryRuns
from app.launch.suggestions import LaunchSuggestions
from app.llama_server.engine import find_engine
from app.llama_server.probe import EngineProbe
from app.parts import (
    Inventory,
    candidates_of,
    checkup_of,
    claims_of,
    clear_up,
    diagnosis_of,
    first_look,
    inventory_of,
    models_of,
    prepare_folders,
    running,
    surroundings_of,
)
from app.profiles.catalog import ProfileCatalog, ProfileDeleted
from app.profiles.files import ProfileFiles
from app.proxy.observer import RequestFinished
from app.proxy.relay import Relay
from app.proxy.upstream import Upstreams
from app.series import series_of
from app.settings import Settings
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.speeds import RecordedSpeeds
from app.telemetry.spill import SpillFile
from app.telemetry.window_hours import WindowHours
from app.windows import hear_windows, windows_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Application:
    """The service. `asgi` is what a server runs, the gate first; `api` the control API behind it, whose lifespan owns
    all that runs. `end_streams` ends the answers that would go on for ever.
    """

    asgi: ASGIApp
    api: FastAPI
    end_streams: Callable[[], None]


def create_app(settings: Settings) -> Application:
    """The service for these settings.

    Raises SettingsInvalid where the settings contradict each other, or would open the machine.
    """
    bus = EventBus()
    database = Database(settings.database)
    runtime_dir = settings.make_runtime_dir()
    entrance = Entrance(settings, database)
    catalog = ProfileCatalog(database, bus.publish, in_use=lambda profile_id: supervisor.is_running(profile_id))  # noqa: PLW0108 - it comes later
    files = ProfileFiles(settings.profiles_folder, catalog)
    probe = EngineProbe(lambda: find_engine(settings.engine), settings.rpc)
    inventory = inventory_of(probe, lambda: supervisor.roster.records())  # noqa: PLW0108 - it comes later
    dry_runs = DryRuns(launcher=tether_words(), folder=runtime_dir)
    calibrations = CalibrationBook(database)
    circumstances = Circumstances(
        model_dirs=settings.model_folders,
        rpc=settings.rpc,
        margin_bytes=settings.margin_bytes,
        claims=claims_of(catalog),
        machine=inventory.reader.now,
        others=lambda profile_id, gone: supervisor.others(profile_id, gone),  # noqa: PLW0108 - it comes later
        measured=calibrations.measured,
    )
    check = LaunchCheck(probe, dry_runs, circumstances)
    suggestions = LaunchSuggestions(check, probe, circumstances)
    archive = InstanceArchive(database, file_of_lives(settings.data_dir / "instances.spill"))
    outputs = OutputFeeds()
    windows = windows_of(lambda: supervisor.roster, bus)
    supervisor = Supervisor(
        catalog,
        check,
        surroundings_of(settings, runtime_dir),
        Listeners(bus.publish, archive.store, calibrations.store, outputs.begin, windows.last_look),
    )
    checkup = checkup_of(supervisor.roster, inventory, bus, database)
    event_feed = EventFeed(supervisor.roster.record)
    upstreams = Upstreams(connect_timeout_seconds=settings.connect_seconds, idle_timeout_seconds=settings.idle_seconds)
    speeds = RecordedSpeeds(database)
    relay = Relay(
        names=catalog.names,
        profile=lambda profile_id: catalog.get(profile_id).profile,
        candidates=candidates_of(catalog, supervisor, speeds),
        lease=supervisor.lease,
        lease_when_ready=supervisor.lease_when_ready,
        models=lambda: models_of(catalog, supervisor),
        publish=bus.publish,
        render_error=problems.relay_answer,
        upstreams=upstreams,
        ids=TimeOrderedIds(),
        max_body_bytes=settings.max_body_bytes,
        sign_of_life_seconds=settings.sign_of_life_seconds or None,
    )
    recorder = Recorder(database, spill=SpillFile(settings.data_dir / "telemetry.spill"))
    _subscribe(bus, recorder, relay, supervisor, inventory, outputs)
    series = series_of(
        *(bus, catalog, probe, database, recorder, supervisor, inventory.sampler, relay),
        paused=windows.paused,
        refused=entrance.refusals.counts,
        queue_limit=settings.queue_limit,
    )
    event_feed.subscribe(bus)
    window_hours = WindowHours(database, is_all_there=lambda: recorder.spilled_rows == 0)
    retention = Retention(
        database, days=settings.retention_days, bytes_most=settings.retention_bytes, labels=recorder.labels
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            with data_folder.held(settings.data_dir, database.path):
                _load(settings, database, entrance, catalog)
                recorder.start(_teller(bus))
                await files.sync()
                await archive.close_earlier_lives()
                await asyncio.to_thread(clear_up, settings)
                jobs = (
                    files.watch(),
                    inventory.sampler.run(),
                    checkup.run(),
                    windows.run(),
                    series.run(),
                    archive.run(),
                    window_hours.run(),
                    retention.run(),
                    speeds.run(),
                    autostart(catalog, supervisor, bus.publish),
                )
                async with running(first_look(probe), *jobs, first=speeds.first_reading()):
                    yield
                    await supervisor.close(settings.drain_seconds)
                await write_the_rest(dry_runs, upstreams, database, recorder, archive)
        finally:
            await asyncio.to_thread(database.close)
            shutil.rmtree(runtime_dir, ignore_errors=True)

    # The page of the API comes from here: without a network it works, and nobody else's script meets an open API.
    app = FastAPIOffline(
        redoc_url=None,
        title="Paceline",
        version=__version__,
        description="Launch profiles, placement checks and a faithful relay in front of llama-server.",
        lifespan=lifespan,
    )
    problems.install(app)

    for router in (
        presets_api.router(),
        profiles_api.router(catalog, supervisor.status),
        check_api.router(catalog, check, supervisor.room),
        suggest_api.router(catalog, suggestions),
        imports_api.router(catalog, probe, settings.model_folders),
        lifecycle_api.router(supervisor, drain_seconds=settings.drain_seconds),
        devices_api.router(
            inventory.reader,
            supervisor.roster.records,
            reserved=lambda: supervisor.others("").reserved,
            samples=inventory.sampler.devices,
        ),
        models_api.router(ModelScan(settings.model_folders)),
        instances_api.router(supervisor.roster, archive),
        diagnosis_api.router(diagnosis_of(checkup, supervisor.roster, archive, catalog)),
        log_stream_api.router(outputs, catalog.get),
        events_api.router(event_feed.feed),
        requests_api.router(database, RelayedRequests(relay)),
        keys_api.router(entrance.book, catalog.get),
        metrics_api.router(series.registry),
        system_api.router(
            database, probe, files.problems, *(each.findings for each in (recorder, window_hours, retention))
        ),
        relayed_api.router(),
    ):
        app.include_router(router)
    describe(app)
    return Application(
        entrance.before(app, relay), app, end_of_waiting(event_feed, outputs, supervisor, dry_runs, database)
    )


def _load(settings: Settings, database: Database, entrance: Entrance, catalog: ProfileCatalog) -> None:
    """What must be there before anything runs."""
    prepare_folders(settings)
    database.migrate()
    database.start()
    entrance.load()
    catalog.load()


def _teller(bus: EventBus) -> Callable[[Finding], None]:
    """Tells of findings about the service that come up on other threads."""
    loop = asyncio.get_running_loop()

    def tell(finding: Finding) -> None:
        loop.call_soon_threadsafe(bus.publish, FindingRaised(None, "telemetry", finding))

    return tell


def _subscribe(
    bus: EventBus,
    recorder: Recorder,
    relay: Relay,
    supervisor: Supervisor,
    inventory: Inventory,
    outputs: OutputFeeds,
) -> None:
    """Who hears of what. The relay first: it closes connections before an instance is signalled."""
    bus.subscribe(InstanceStateChanged, relay.on_instance_state)
    bus.subscribe(InstanceStateChanged, _log_state)
    bus.subscribe(RequestFinished, recorder.on_request_finished)
    hear_windows(bus, recorder.take)
    bus.subscribe(InstanceStateChanged, lambda _: inventory.listing.forget())
    bus.subscribe(InstanceStateChanged, inventory.sampler.on_instance_state)
    bus.subscribe(ProfileDeleted, lambda event: supervisor.forget(event.profile_id))
    bus.subscribe(ProfileDeleted, lambda event: outputs.forget(event.profile_id))


def _log_state(event: InstanceStateChanged) -> None:
    reason = f": {event.reason}" if event.reason else ""
    level = logging.WARNING if event.state is InstanceState.FAILED else logging.INFO
    _log.log(
        level,
        "profile %s is %s%s (instance %s)",
        event.profile_id,
        event.state.value,
        reason,
        id_text(event.instance_id),
    )
