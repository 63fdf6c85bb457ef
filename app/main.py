"""The composition root: every collaborator is built here, and handed what it needs. Importing it has no effect."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from app import __version__
from app.access.keys import gatekeeper
from app.api import check as check_api
from app.api import instances as instances_api
from app.api import metrics as metrics_api
from app.api import presets as presets_api
from app.api import problems
from app.api import profiles as profiles_api
from app.api import requests as requests_api
from app.api import system as system_api
from app.api.gate import Gate
from app.database import Database
from app.errors import PacelineError
from app.events import EventBus
from app.identifiers import TimeOrderedIds
from app.instances.archive import InstanceArchive
from app.instances.deadlines import Deadlines
from app.instances.state import InstanceStateChanged
from app.instances.supervisor import Supervisor, Surroundings
from app.launch.check import LaunchCheck
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
    runtime_dir = settings.make_runtime_dir()
    bus = EventBus()
    database = Database(settings.database)
    catalog = ProfileCatalog(database, bus.publish, in_use=lambda profile_id: supervisor.is_running(profile_id))  # noqa: PLW0108 - it comes later
    files = ProfileFiles(settings.profiles_folder, catalog)
    probe = EngineProbe(lambda: find_engine(settings.engine), settings.rpc)
    check = LaunchCheck(probe, settings.model_folders, settings.rpc, _claims(catalog))
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
    bus.subscribe(RequestFinished, recorder.on_request_finished)
    bus.subscribe(RequestFinished, instruments.on_request_finished)
    bus.subscribe(InstanceStateChanged, relay.on_instance_state)
    bus.subscribe(InstanceStateChanged, instruments.on_instance_state_changed)
    bus.subscribe(ProfileDeleted, instruments.on_profile_deleted)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        database.migrate()
        database.start()
        try:
            catalog.load()
            await files.sync()
            await archive.close_earlier_lives()
            async with _running(files.watch(), _first_look(probe)):
                yield
                await supervisor.close(settings.drain_seconds)
        finally:
            upstreams.close()
            await recorder.flush()
            await asyncio.to_thread(database.close)
            if settings.runtime_dir is None:
                shutil.rmtree(runtime_dir, ignore_errors=True)

    app = FastAPI(
        title="Paceline",
        version=__version__,
        description="Launch profiles, placement checks and a faithful relay in front of llama-server.",
        lifespan=lifespan,
    )
    problems.install(app)
    app.include_router(presets_api.router())
    app.include_router(profiles_api.router(catalog, supervisor.status))
    app.include_router(check_api.router(catalog, check))
    app.include_router(instances_api.router(supervisor, archive, drain_seconds=settings.drain_seconds))
    app.include_router(requests_api.router(database))
    app.include_router(metrics_api.router(registry))
    app.include_router(system_api.router(database, probe, files.problems))
    app.add_middleware(Gate, gatekeeper=keeper, relay=relay)
    return app


def _surroundings(settings: Settings, runtime_dir: Path) -> Surroundings:
    return Surroundings(
        runtime_dir=runtime_dir,
        logs_dir=settings.data_dir / "logs",
        transport=settings.engine_transport,
        deadlines=Deadlines(settings.load_total_seconds, settings.terminate_seconds, settings.kill_seconds),
    )


def _claims(catalog: ProfileCatalog) -> Callable[[LaunchProfile], Mapping[str, Sequence[str]]]:
    def claims(profile: LaunchProfile) -> Mapping[str, Sequence[str]]:
        return {name: [other for other in catalog.claims(name) if other != profile.id] for name in profile.names}

    return claims


def _models(catalog: ProfileCatalog, supervisor: Supervisor) -> list[dict[str, Any]]:
    """What GET /v1/models lists: every name a request may use, with the state behind it."""
    return [
        {
            "id": name,
            "object": "model",
            "created": int(stored.created_at.timestamp()),
            "owned_by": "paceline",
            "profile": stored.profile.id,
            "state": supervisor.status(stored.profile.id)["state"],
        }
        for stored in catalog.list()
        for name in stored.profile.names
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
