"""The composition root: every collaborator is built here, and handed what it needs. Importing it has no effect."""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from app import __version__, data_folder
from app.access.keys import gatekeeper
from app.access.origins import origin_guard
from app.api import check as check_api
from app.api import devices as devices_api
from app.api import imports as imports_api
from app.api import instances as instances_api
from app.api import lifecycle as lifecycle_api
from app.api import metrics as metrics_api
from app.api import models as models_api
from app.api import presets as presets_api
from app.api import problems
from app.api import profiles as profiles_api
from app.api import requests as requests_api
from app.api import suggest as suggest_api
from app.api import system as system_api
from app.api.gate import Gate
from app.database import Database
from app.errors import PacelineError
from app.events import EventBus
from app.identifiers import TimeOrderedIds, id_text
from app.instances.archive import InstanceArchive
from app.instances.calibration import CalibrationBook
from app.instances.deadlines import Deadlines
from app.instances.process import tether_words
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.supervisor import Supervisor, Surroundings
from app.inventory.devices import Device
from app.inventory.host import host_now
from app.inventory.listing import DeviceListing
from app.inventory.machine import MachineReader
from app.inventory.model_scan import ModelScan
from app.inventory.nvml import Nvml
from app.inventory.nvml_reader import NvmlReader
from app.launch.check import LaunchCheck
from app.launch.circumstances import Circumstances
from app.launch.dry_run import DryRuns
from app.launch.suggestions import LaunchSuggestions
from app.llama_server.engine import find_engine
from app.llama_server.probe import EngineProbe
from app.metrics.collectors import MetricsRegistry, ServiceCollector
from app.metrics.instruments import Instruments
from app.profiles.catalog import ProfileCatalog, ProfileDeleted
from app.profiles.files import ProfileFiles
from app.profiles.profile import LaunchProfile
from app.proxy.observer import RequestFinished
from app.proxy.relay import Relay
from app.proxy.upstream import Upstreams
from app.settings import Settings
from app.telemetry.recorder import Recorder

_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The service for these settings: an ASGI application whose lifespan owns all that runs.

    Raises SettingsInvalid where the settings contradict each other, or would open the machine.
    """
    keeper = gatekeeper(settings)
    bus = EventBus()
    database = Database(settings.database)
    runtime_dir = settings.make_runtime_dir()
    catalog = ProfileCatalog(database, bus.publish, in_use=lambda profile_id: supervisor.is_running(profile_id))  # noqa: PLW0108 - it comes later
    files = ProfileFiles(settings.profiles_folder, catalog)
    probe = EngineProbe(lambda: find_engine(settings.engine), settings.rpc)
    listing, machine = _inventory(probe, lambda: supervisor.records())  # noqa: PLW0108 - it comes later
    dry_runs = DryRuns(launcher=tether_words(), folder=runtime_dir)
    circumstances = Circumstances(
        model_dirs=settings.model_folders,
        rpc=settings.rpc,
        margin_bytes=settings.margin_bytes,
        claims=_claims(catalog),
        machine=machine.now,
        others=lambda profile_id: supervisor.others(profile_id),  # noqa: PLW0108 - it comes later
        measured=CalibrationBook(database).measured,
    )
    check = LaunchCheck(probe, dry_runs, circumstances)
    suggestions = LaunchSuggestions(check, probe, circumstances)
    archive = InstanceArchive(database)
    supervisor = Supervisor(
        catalog, check, _surroundings(settings, runtime_dir), publish=bus.publish, keep=archive.store
    )
    upstreams = Upstreams(connect_timeout_seconds=settings.connect_seconds, idle_timeout_seconds=settings.idle_seconds)
    relay = Relay(
        names=catalog.names,
        lease=supervisor.lease,
        models=lambda: _models(catalog, supervisor),
        publish=bus.publish,
        render_error=problems.openai_answer,
        upstreams=upstreams,
        ids=TimeOrderedIds(),
        max_body_bytes=settings.max_body_bytes,
    )
    recorder = Recorder(database)
    registry, instruments = _metrics(probe, database, recorder)
    _subscribe(bus, recorder, instruments, relay, supervisor)
    bus.subscribe(InstanceStateChanged, lambda _: listing.forget())

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            with data_folder.held(settings.data_dir):
                _prepare_folders(settings)
                database.migrate()
                database.start()
                catalog.load()
                await files.sync()
                await archive.close_earlier_lives()
                async with _running(files.watch(), _first_look(probe)):
                    yield
                    await supervisor.close(settings.drain_seconds)
                await dry_runs.close()
                upstreams.close()
                await recorder.flush()
        finally:
            await asyncio.to_thread(database.close)
            shutil.rmtree(runtime_dir, ignore_errors=True)

    app = FastAPI(
        title="Paceline",
        version=__version__,
        description="Launch profiles, placement checks and a faithful relay in front of llama-server.",
        lifespan=lifespan,
    )
    problems.install(app)
    for router in (
        presets_api.router(),
        profiles_api.router(catalog, supervisor.status),
        check_api.router(catalog, check),
        suggest_api.router(catalog, suggestions),
        imports_api.router(catalog, probe, settings.model_folders),
        lifecycle_api.router(supervisor, drain_seconds=settings.drain_seconds),
        devices_api.router(machine, supervisor.records, reserved=lambda: supervisor.others("").reserved),
        models_api.router(ModelScan(settings.model_folders)),
        instances_api.router(supervisor, archive),
        requests_api.router(database),
        metrics_api.router(registry),
        system_api.router(database, probe, files.problems),
    ):
        app.include_router(router)
    app.add_middleware(Gate, gatekeeper=keeper, guard=origin_guard(settings), relay=relay)
    return app


def _metrics(probe: EngineProbe, database: Database, recorder: Recorder) -> tuple[MetricsRegistry, Instruments]:
    registry = MetricsRegistry()
    instruments = Instruments(registry)
    registry.register(
        ServiceCollector(
            __version__,
            lambda: probe.known.build if probe.known else None,
            lambda: database.backlog,
            lambda: recorder.lost_rows,
        )
    )
    return registry, instruments


def _subscribe(
    bus: EventBus, recorder: Recorder, instruments: Instruments, relay: Relay, supervisor: Supervisor
) -> None:
    """Who hears of what. The relay first: it closes connections before an instance is signalled."""
    bus.subscribe(InstanceStateChanged, relay.on_instance_state)
    bus.subscribe(InstanceStateChanged, _log_state)
    bus.subscribe(InstanceStateChanged, instruments.on_instance_state_changed)
    bus.subscribe(RequestFinished, recorder.on_request_finished)
    bus.subscribe(RequestFinished, instruments.on_request_finished)
    bus.subscribe(ProfileDeleted, instruments.on_profile_deleted)
    bus.subscribe(ProfileDeleted, lambda event: supervisor.forget(event.profile_id))


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


def _prepare_folders(settings: Settings) -> None:
    """Make the folders that are ours by default; say which of the given ones are not there."""
    ours = [] if settings.profiles_dir else [settings.profiles_folder]
    ours += [] if settings.model_dirs else settings.model_folders
    for folder in ours:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
    if not settings.profiles_folder.is_dir():
        _log.warning("the profiles folder %s is not a folder: no profile is read from it", settings.profiles_folder)
    for folder in settings.model_folders:
        if not folder.is_dir():
            _log.warning("PACELINE_MODEL_DIRS names %s, which is not a folder: no model is found there", folder)


def _inventory(
    probe: EngineProbe, records: Callable[[], Sequence[InstanceRecord]]
) -> tuple[DeviceListing, MachineReader]:
    """What lists the engine's devices, and what gives the machine from that, the driver and the host."""

    async def known_devices() -> Sequence[Device]:
        return (await probe.facts()).devices

    listing = DeviceListing(
        known_devices=known_devices,
        list_devices=probe.list_devices,
        is_in_use=lambda: any(not record.state.is_terminal for record in records()),
    )
    reader = MachineReader(
        listing=listing,
        read_nvml=NvmlReader(Nvml().read).read,
        host=host_now,
        ours=lambda: {record.pid for record in records() if record.pid},
        environment=os.environ,
    )
    return listing, reader


def _surroundings(settings: Settings, runtime_dir: Path) -> Surroundings:
    return Surroundings(
        runtime_dir=runtime_dir,
        logs_dir=settings.data_dir / "logs",
        transport=settings.engine_transport,
        deadlines=Deadlines(settings.load_total_seconds, settings.terminate_seconds, settings.kill_seconds),
    )


def _claims(catalog: ProfileCatalog) -> Callable[[LaunchProfile], Mapping[str, Sequence[str]]]:
    """For each name of a profile, the others that have it. Who has it first is not disturbed by who comes later."""

    def others(profile: LaunchProfile, name: str) -> Sequence[str]:
        claiming = catalog.claims(name)
        return [] if claiming[:1] == [profile.id] else [other for other in claiming if other != profile.id]

    return lambda profile: {name: others(profile, name) for name in profile.names}


def _models(catalog: ProfileCatalog, supervisor: Supervisor) -> list[dict[str, Any]]:
    """What GET /v1/models lists: every name a request may use, with the state behind it."""
    return [
        {
            "id": name,
            "object": "model",
            "created": int(catalog.get(profile_id).created_at.timestamp()),
            "owned_by": "paceline",
            "profile": profile_id,
            "state": supervisor.status(profile_id)["state"],
        }
        for name, profile_id in sorted(catalog.names().items(), key=lambda item: (item[1], item[0] != item[1], item[0]))
    ]


@contextlib.asynccontextmanager
async def _running(*jobs: Any) -> AsyncIterator[None]:
    """Run these coroutines beside the body, and end them with it."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_look(probe: EngineProbe) -> None:
    """Ask the engine early: the first check then has its answer."""
    try:
        facts = await probe.facts()
    except PacelineError as problem:
        _log.warning("%s", problem.message)
        return
    devices = ", ".join(facts.device_names) or "no devices"
    _log.info("engine %s, build %s, %s", " ".join(facts.command), facts.build, devices)
