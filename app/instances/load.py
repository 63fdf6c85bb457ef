"""A load from exec to ready: what may end it, raced against each other."""

import asyncio
import time
from collections.abc import Callable

from app.events import Event
from app.instances.deadlines import Deadlines
from app.instances.facts import InstanceLoadProgressed
from app.instances.loading import LoadWatch, watch_load
from app.instances.looks import ProcessLook
from app.instances.prepared import Prepared
from app.instances.process import ServerProcess
from app.instances.readiness import ForeignServer, Readiness, become_ready
from app.instances.waiting import beside
from app.launch.report import Launch
from app.llama_server.load_stages import LoadStage
from app.llama_server.log_lines import Failure


async def until_loaded(
    launch: Launch,
    prepared: Prepared,
    process: ServerProcess,
    stop_asked: asyncio.Event,
    watch: LoadWatch,
    deadlines: Deadlines,
    publish: Callable[[Event], None],
) -> Readiness | Failure | None:
    """What was proven once it serves, or why it must be ended. None where it exited, or was asked to stop.

    How the load comes on is told, and its end where it serves: a short load is over before anybody looks.
    """
    instance_id, profile_id = prepared.upstream.instance_id, launch.profile.id
    stalls = watch_load(
        watch,
        ProcessLook(process.pid, with_cached=True).take,
        stall_seconds=deadlines.load_stall_seconds,
        instance_id=instance_id,
        profile_id=profile_id,
        publish=publish,
    )
    async with beside(become_ready(prepared.upstream, process.pid), stalls, stop_asked.wait()) as waited:
        ready, stalled, asked = waited
        await asyncio.wait(
            {*waited, process.exited}, timeout=deadlines.load_total_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if process.exited.done() or asked.done():
            return None
        if ready.done():
            if (problem := ready.exception()) is not None:
                return _why_not_ready(problem)
            seconds = time.monotonic() - watch.began_at
            publish(InstanceLoadProgressed(instance_id, profile_id, LoadStage.LOADED.value, 1.0, seconds))
            readiness: Readiness = ready.result()
            return readiness
        if stalled.done():
            return Failure("load-stalled", watch.stalled_for(deadlines.load_stall_seconds))
        return Failure("load-timeout", f"It was not ready within {deadlines.load_total_seconds:g} s.")


def _why_not_ready(failure: BaseException) -> Failure:
    if isinstance(failure, ForeignServer):
        return Failure("address-foreign", "Another program answers at the server's address.")
    return Failure("readiness-failed", f"It says that it is healthy, but cannot be asked about itself: {failure!r}")
