"""The lives of server processes, present and past, and what they printed."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.api.resources import InstanceResource, Page
from app.errors import InstanceNotFound
from app.identifiers import id_text, parse_id
from app.instances.archive import InstanceArchive
from app.instances.record import InstanceRecord
from app.instances.roster import Roster
from app.telemetry.queries import QueryInvalid

Tail = Annotated[int, Query(ge=1, le=2000, description="how many of the last lines")]


class LogLines(BaseModel):
    """The last lines of one life, oldest first."""

    instance_id: str
    items: list[str]
    next_cursor: str | None = None


def router(roster: Roster, archive: InstanceArchive) -> APIRouter:
    """Routes over the roster (lives of this run) and the archive (all lives)."""
    routes = APIRouter(tags=["instances"])

    @routes.get("/profiles/{profile_id}/logs")
    async def profile_logs(profile_id: str, tail: Tail = 200) -> LogLines:
        """The last lines of the profile's newest instance."""
        try:
            identifier, lines = roster.logs(profile_id, tail)
        except InstanceNotFound:
            earlier = await asyncio.to_thread(archive.newest, 1, None, profile_id)
            if not earlier:
                raise
            identifier = earlier[0].id
            lines = await asyncio.to_thread(roster.logs_of, identifier, tail)
        return LogLines(instance_id=id_text(identifier), items=list(lines))

    @routes.get("/instances")
    async def instances(
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: Annotated[str | None, Query(description="the next_cursor of the page before")] = None,
        profile: Annotated[str | None, Query(description="only lives of this profile")] = None,
    ) -> Page[InstanceResource]:
        """Every life known, newest first."""
        before = parse_id(cursor) if cursor is not None else None
        if cursor is not None and before is None:
            raise QueryInvalid("cursor", "give the next_cursor of the page before")
        stored = await asyncio.to_thread(archive.newest, limit + 1, before, profile)
        known = {record.id: record for record in stored}
        # The archive is written a moment later: what runs now is known better here.
        known.update(
            (record.id, record)
            for record in roster.records()
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
        lines = await asyncio.to_thread(roster.logs_of, record.id, tail)
        return LogLines(instance_id=instance_id, items=list(lines))

    async def _known(instance_id: str) -> InstanceRecord:
        identifier = parse_id(instance_id)
        if identifier is not None:
            for record in roster.records():
                if record.id == identifier:
                    return record
            stored = await asyncio.to_thread(archive.get, identifier)
            if stored is not None:
                return stored
        raise InstanceNotFound(f"no instance {instance_id!r}; GET /instances lists them")

    return routes
