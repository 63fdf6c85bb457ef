"""Starting and stopping profiles."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.api.resources import InstanceResource
from app.errors import InstanceFailed, ProfileNotRunning, WaitTimedOut
from app.identifiers import id_text
from app.instances.instance import Instance
from app.instances.state import InstanceState
from app.instances.supervisor import Supervisor

_STARTED = frozenset({InstanceState.READY, InstanceState.STOPPED, InstanceState.FAILED})
_ENDED = frozenset(state for state in InstanceState if state.is_terminal)

Wait = Annotated[bool, Query(description="hold the answer until it is done")]
TimeoutSeconds = Annotated[float, Query(gt=0, le=86400, description="longest wait; then 202 with how it stands")]
DrainSeconds = Annotated[float | None, Query(ge=0, le=86400, description="how long running requests may go on")]


_ON_ITS_WAY: dict[int | str, dict[str, Any]] = {
    202: {"model": InstanceResource, "description": "it is not there yet"},
}
_LAUNCHING: dict[int | str, dict[str, Any]] = {
    **_ON_ITS_WAY,
    409: {"description": "the check refuses the launch; `report` says why"},
    502: {"description": "the instance failed; `reason` and `last_lines` say why"},
    504: {"description": "it could not be launched in `timeout_seconds`"},
}


def router(supervisor: Supervisor, *, drain_seconds: float) -> APIRouter:
    """Routes over the supervisor; `drain_seconds` is how long a stop waits where the caller says nothing."""
    routes = APIRouter(tags=["instances"])

    @routes.post("/profiles/{profile_id}/start", responses=_LAUNCHING)
    async def start(
        profile_id: str,
        response: Response,
        wait: Wait = False,
        timeout_seconds: TimeoutSeconds = 3600,
        force: Annotated[bool, Query(description="pass errors that are a judgement")] = False,
    ) -> InstanceResource:
        """Check, then launch. 409 with the report when the check refuses; 200 when it runs already."""
        try:
            async with asyncio.timeout(timeout_seconds):
                life, is_new = await supervisor.start(profile_id, force=force, is_patient=wait)
        except TimeoutError:
            raise _not_launched(profile_id, timeout_seconds) from None
        return await _started(life, response, wait=wait, seconds=timeout_seconds, is_new=is_new)

    @routes.post(
        "/profiles/{profile_id}/stop",
        responses={**_ON_ITS_WAY, 409: {"description": "there is nothing that could be stopped"}},
    )
    async def stop(
        profile_id: str,
        response: Response,
        wait: Wait = False,
        timeout_seconds: TimeoutSeconds = 3600,
        drain_seconds: DrainSeconds = drain_seconds,
    ) -> InstanceResource:
        """Let running requests finish for `drain_seconds`, then stop."""
        life = supervisor.stop(profile_id, drain_seconds or 0)
        if wait:
            await _until(life, _ENDED, timeout_seconds)
        response.status_code = 200 if life.state.is_terminal else 202
        return InstanceResource.of(life.record())

    @routes.post("/profiles/{profile_id}/restart", responses=_LAUNCHING)
    async def restart(
        profile_id: str,
        response: Response,
        wait: Wait = False,
        timeout_seconds: TimeoutSeconds = 3600,
        drain_seconds: DrainSeconds = drain_seconds,
        force: Annotated[bool, Query(description="pass errors that are a judgement")] = False,
    ) -> InstanceResource:
        """Stop what runs and start a new instance. A profile that the check refuses goes on serving: 409."""
        earlier = supervisor.roster.newest(profile_id)
        restarting = await supervisor.restart(profile_id, drain_seconds or 0, force=force)
        if wait or earlier is None or earlier.state.is_terminal:
            await asyncio.wait({restarting}, timeout=timeout_seconds)
        if restarting.cancelled():
            raise ProfileNotRunning("the service is stopping and starts nothing new", profile=profile_id)
        if restarting.done():
            return await _started(restarting.result(), response, wait=wait, seconds=timeout_seconds, is_new=True)
        if earlier is None:
            raise _not_launched(profile_id, timeout_seconds)
        # What is seen now is the earlier life on its way out; its successor follows.
        response.status_code = 202
        return InstanceResource.of(earlier.record())

    return routes


def _not_launched(profile_id: str, seconds: float) -> WaitTimedOut:
    return WaitTimedOut(
        f"profile {profile_id!r} could not be launched within {seconds:g} s: its check, room for it, or the end of its "
        "earlier life takes longer; ask again"
    )


async def _started(life: Instance, response: Response, *, wait: bool, seconds: float, is_new: bool) -> InstanceResource:
    if wait:
        await _until(life, _STARTED, seconds)
    record = life.record()
    if wait and record.state.is_terminal:
        failure = record.failure or {"reason": "stopped", "message": "It was stopped while it loaded."}
        raise InstanceFailed(
            f"profile {record.profile_id!r} did not start ({failure['reason']}): {failure['message']}",
            reason=failure["reason"],
            instance_id=id_text(record.id),
            last_lines=failure.get("last_lines", []),
        )
    is_done = record.state is InstanceState.READY
    response.status_code = 200 if (is_done and (wait or not is_new)) or not is_new else 202
    return InstanceResource.of(record)


async def _until(life: Instance, states: frozenset[InstanceState], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await life.until(states.__contains__)
    except TimeoutError:
        return
