"""Starting and stopping profiles, and the lives that come of it."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from app.api.resources import InstanceResource, Page
from app.errors import InstanceFailed, InstanceNotFound
from app.identifiers import id_text, parse_id
from app.instances.archive import InstanceArchive
from app.instances.instance import Instance
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.instances.supervisor import Supervisor

_STARTED = frozenset({InstanceState.READY, InstanceState.STOPPED, InstanceState.FAILED})

Wait = Annotated[bool, Query(description="hold the answer until it is done")]
TimeoutSeconds = Annotated[float, Query(gt=0, le=86400, description="longest wait; then 202 with how it stands")]
Tail = Annotated[int, Query(ge=1, le=2000, description="how many of the last lines")]
DrainSeconds = Annotated[float | None, Query(ge=0, le=86400, description="how long running requests may go on")]


class LogLines(BaseModel):
    """The last lines of one life, oldest first."""

    instance_id: str
    items: list[str]
    next_cursor: str | None = None


def router(supervisor: Supervisor, archive: InstanceArchive, *, drain_seconds: float) -> APIRouter:
    """Routes over the supervisor (lives of this run) and the archive (all lives)."""
    routes = APIRouter(tags=["instances"])

    @routes.post("/profiles/{profile_id}/start")
    async def start(
        profile_id: str,
        response: Response,
        wait: Wait = False,
        timeout_seconds: TimeoutSeconds = 3600,
        force: Annotated[bool, Query(description="pass errors that are a judgement")] = False,
    ) -> InstanceResource:
        """Check, then launch. 409 with the report when the check refuses; 200 when it runs already."""
        life, is_new = await supervisor.start(profile_id, force=force)
        return await _started(life, response, wait=wait, seconds=timeout_seconds, is_new=is_new)

    @routes.post("/profiles/{profile_id}/stop")
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
            await _until(life, frozenset(state for state in InstanceState if state.is_terminal), timeout_seconds)
        response.status_code = 200 if life.state.is_terminal else 202
        return InstanceResource.of(life.record())

    @routes.post("/profiles/{profile_id}/restart")
    async def restart(
        profile_id: str,
        response: Response,
        wait: Wait = False,
        timeout_seconds: TimeoutSeconds = 3600,
        drain_seconds: DrainSeconds = drain_seconds,
        force: Annotated[bool, Query(description="pass errors that are a judgement")] = False,
    ) -> InstanceResource:
        """Stop what runs and start a new instance."""
        life = await supervisor.restart(profile_id, drain_seconds or 0, force=force)
        return await _started(life, response, wait=wait, seconds=timeout_seconds, is_new=True)

    @routes.get("/profiles/{profile_id}/logs")
    async def profile_logs(profile_id: str, tail: Tail = 200) -> LogLines:
        """The last lines of the profile's newest instance."""
        try:
            identifier, lines = supervisor.logs(profile_id, tail)
        except InstanceNotFound:
            earlier = await asyncio.to_thread(archive.newest, 1, None, profile_id)
            if not earlier:
                raise
            identifier = earlier[0].id
            lines = await asyncio.to_thread(supervisor.logs_of, identifier, tail)
        return LogLines(instance_id=id_text(identifier), items=list(lines))

    @routes.get("/instances")
    async def instances(
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(description="the next_cursor of the page before")] = None,
        profile: Annotated[str | None, Query(description="only lives of this profile")] = None,
    ) -> Page[InstanceResource]:
        """Every life known, newest first."""
        before = parse_id(cursor) if cursor else None
        stored = await asyncio.to_thread(archive.newest, limit + 1, before, profile)
        known = {record.id: record for record in stored}
        # The archive is written a moment later: what runs now is known better here.
        known.update(
            (record.id, record)
            for record in supervisor.records()
            if (before is None or record.id < before) and profile in (None, record.profile_id)
        )
        newest = sorted(known.values(), key=lambda record: -record.id)
        page = [InstanceResource.of(record) for record in newest[:limit]]
        return Page(items=page, next_cursor=page[-1].id if len(newest) > limit else None)

    @routes.get("/instances/{instance_id}")
    async def instance(instance_id: str) -> InstanceResource:
        """One life."""
        return InstanceResource.of(await _known(instance_id))

    @routes.get("/instances/{instance_id}/logs")
    async def instance_logs(instance_id: str, tail: Tail = 200) -> LogLines:
        """The last lines of one life, also after its end."""
        record = await _known(instance_id)
        lines = await asyncio.to_thread(supervisor.logs_of, record.id, tail)
        return LogLines(instance_id=instance_id, items=list(lines))

    async def _known(instance_id: str) -> InstanceRecord:
        identifier = parse_id(instance_id)
        if identifier is not None:
            for record in supervisor.records():
                if record.id == identifier:
                    return record
            stored = await asyncio.to_thread(archive.get, identifier)
            if stored is not None:
                return stored
        raise InstanceNotFound(f"no instance {instance_id!r}; GET /instances lists them")

    return routes


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
