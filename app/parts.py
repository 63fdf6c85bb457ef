"""Parts of the service that take more than a line to build, for the composition root alone."""

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.database import Database
from app.errors import PacelineError
from app.events import EventBus
from app.findings import Finding
from app.instances.archive import InstanceArchive
from app.instances.canary import CanaryPolicy
from app.instances.checkup import Checkup
from app.instances.deadlines import Deadlines
from app.instances.diagnosis.ends import end_of
from app.instances.log_files import prune_logs
from app.instances.orphans import end_orphans
from app.instances.record import InstanceRecord
from app.instances.restart import RestartPolicy
from app.instances.roster import Roster
from app.instances.samples import Sampler
from app.instances.state import InstanceStateChanged
from app.instances.supervisor import Supervisor
from app.instances.surroundings import Surroundings
from app.instances.tallies import Tallies
from app.inventory.device_match import ORDER_OF_BUS, ORDER_VARIABLE
from app.inventory.devices import Device
from app.inventory.host import host_now
from app.inventory.listing import DeviceListing
from app.inventory.machine import MachineReader
from app.inventory.nvml import Nvml
from app.inventory.nvml_reader import NvmlReader
from app.llama_server.probe import EngineProbe
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile
from app.proxy.auto import Candidate, Speed, purpose_of
from app.proxy.observer import RequestFinished
from app.settings import Settings
from app.telemetry.baselines import Baselines
from app.telemetry.speeds import RecordedSpeeds

_log = logging.getLogger(__name__)


def prepare_folders(settings: Settings) -> None:
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


def clear_up(settings: Settings) -> None:
    """What an earlier run left behind: its children where it was killed, output that is old."""
    bases = {Path(tempfile.gettempdir()), settings.runtime_dir or Path(tempfile.gettempdir())}
    end_orphans(settings.data_dir / "children", bases)
    prune_logs(settings.data_dir / "logs", settings.log_files_kept, set())


@dataclass(frozen=True, slots=True)
class Inventory:
    """What lists the engine's devices, what gives the machine from that, the driver and the host, and what samples."""

    listing: DeviceListing
    reader: MachineReader
    sampler: Sampler


def inventory_of(probe: EngineProbe, records: Callable[[], Sequence[InstanceRecord]]) -> Inventory:
    """The inventory; `records` are the lives of this run."""

    async def known_devices() -> Sequence[Device]:
        return (await probe.facts()).devices

    listing = DeviceListing(
        known_devices=known_devices,
        list_devices=probe.list_devices,
        is_in_use=lambda: any(not record.state.is_terminal for record in records()),
    )
    nvml = NvmlReader(Nvml().read)
    reader = MachineReader(
        listing=listing,
        read_nvml=nvml.read,
        host=host_now,
        ours=lambda: {record.pid for record in records() if record.pid},
        environment=os.environ,
    )
    sampler = Sampler(
        lives=lambda: {record.id: record.pid for record in records() if record.pid},
        devices=known_devices,
        read_nvml=nvml.read,
        environment={**os.environ, ORDER_VARIABLE: ORDER_OF_BUS},
        read_traffic=lambda: nvml.read(traffic=True),
    )
    return Inventory(listing, reader, sampler)


def checkup_of(roster: Roster, inventory: Inventory, bus: EventBus, database: Database) -> Checkup:
    """What diagnoses the instances that run, with counts of what they have served."""
    tallies = Tallies()

    def on_request_finished(event: RequestFinished) -> None:
        if event.instance_id is not None:
            report = event.report
            tallies.add(
                event.instance_id,
                generated_tokens=report.generated_tokens,
                generation_us=report.generation_us,
                draft_tokens=report.draft_tokens,
                accepted_tokens=report.accepted_tokens,
            )

    bus.subscribe(RequestFinished, on_request_finished)
    bus.subscribe(InstanceStateChanged, tallies.on_instance_state)
    return Checkup(
        roster,
        inventory.sampler,
        tallies,
        baseline=Baselines(database).of,
        physical_cores=lambda: host_now().physical_cores,
    )


def diagnosis_of(
    checkup: Checkup, roster: Roster, archive: InstanceArchive, catalog: ProfileCatalog
) -> Callable[[int], Awaitable[Sequence[Finding] | None]]:
    """What is wrong with an instance now, or what its end says; None for one that is not known."""

    async def diagnose(instance_id: int) -> Sequence[Finding] | None:
        life = next((life for life in roster.lives() if life.id == instance_id), None)
        if life is not None and not life.state.is_terminal:
            return await checkup.findings(life)
        record = life.record() if life else await asyncio.to_thread(archive.get, instance_id)
        if record is None:
            return None
        stored = catalog.find(record.profile_id)
        return end_of(record, stored.profile if stored else None)

    return diagnose


def surroundings_of(settings: Settings, runtime_dir: Path) -> Surroundings:
    """Where instances live, as the settings say."""
    return Surroundings(
        runtime_dir=runtime_dir,
        logs_dir=settings.data_dir / "logs",
        transport=settings.engine_transport,
        children_dir=settings.data_dir / "children",
        drain_seconds=settings.drain_seconds,
        deadlines=Deadlines(
            settings.load_total_seconds, settings.load_stall_seconds, settings.terminate_seconds, settings.kill_seconds
        ),
        logs_kept=settings.log_files_kept,
        queue_limit=settings.queue_limit,
        return_seconds=settings.memory_return_seconds,
        yield_after_seconds=settings.yield_seconds,
        restart=RestartPolicy(first_pause_seconds=settings.restart_pause_seconds, crashes_most=settings.restart_most),
        canary=CanaryPolicy(
            failures_most=settings.canary_failures,
            silence_seconds=settings.canary_silence_seconds,
            probe_seconds=settings.canary_probe_seconds,
        ),
    )


def claims_of(catalog: ProfileCatalog) -> Callable[[LaunchProfile], Mapping[str, Sequence[str]]]:
    """For each name of a profile, the others that have it. Who has it first is not disturbed by who comes later."""

    def others(profile: LaunchProfile, name: str) -> Sequence[str]:
        claiming = catalog.claims(name)
        return [] if claiming[:1] == [profile.id] else [other for other in claiming if other != profile.id]

    return lambda profile: {name: others(profile, name) for name in profile.names}


def candidates_of(
    catalog: ProfileCatalog, supervisor: Supervisor, speeds: RecordedSpeeds
) -> Callable[[Collection[str]], Sequence[Candidate]]:
    """What `auto` must know of profiles, as they stand."""

    def candidate(profile_id: str) -> Candidate:
        stored, life = catalog.get(profile_id), supervisor.roster.newest(profile_id)
        profile, context, recorded = stored.profile, stored.profile.context, speeds.of(profile_id)
        is_ready = life is not None and life.takes_requests
        asked = context.size // context.slots if context.size else None
        return Candidate(
            profile_id=profile_id,
            is_ready=is_ready,
            is_blocked=not is_ready and supervisor.is_held_back(profile_id),
            context_per_slot=life.launch.resolved.context_per_slot if life is not None and is_ready else asked,
            has_projector=profile.projector is not None,
            purpose=purpose_of(profile.extra_args),
            overall=recorded.get(None, Speed()),
            by_category={category: speed for category, speed in recorded.items() if category is not None},
        )

    return lambda profile_ids: [candidate(each) for each in sorted(profile_ids)]


def models_of(catalog: ProfileCatalog, supervisor: Supervisor) -> list[dict[str, Any]]:
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
async def running(*jobs: Any, first: Awaitable[None]) -> AsyncIterator[None]:
    """Run these coroutines beside the body, and end them with it; the body begins when they have come to `first`."""
    tasks = [asyncio.create_task(job) for job in jobs]
    for task in tasks:
        task.add_done_callback(_log_breakdown)
    try:
        await first
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_breakdown(job: asyncio.Task[Any]) -> None:
    """Jobs run as long as the service does: one that breaks would otherwise be missed only at its end."""
    if not job.cancelled() and (failure := job.exception()) is not None:
        _log.error("%s broke and does not go on", job.get_coro(), exc_info=failure)


async def first_look(probe: EngineProbe) -> None:
    """Ask the engine early: the first check then has its answer."""
    try:
        facts = await probe.facts()
    except PacelineError as problem:
        _log.warning("%s", problem.message)
        return
    devices = ", ".join(facts.device_names) or "no devices"
    _log.info("engine %s, build %s, %s", " ".join(facts.command), facts.build, devices)
