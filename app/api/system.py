"""The service about itself."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sqlmodel import text

from app import __version__
from app.database import Database
from app.errors import EngineError, PacelineError
from app.findings import Finding
from app.llama_server.probe import EngineProbe
from app.profiles.folder import FileProblem

# Who probes waits for a few seconds; SQLite waits for a lock as long.
_PATIENCE_SECONDS = 1.0


class Health(BaseModel):
    """The service lives."""

    status: str = "ok"


class FileProblemResource(BaseModel):
    """A profile file that could not be taken in; the others serve all the same."""

    file: str
    line: int | None
    message: str


class Ready(BaseModel):
    """Whether it can take work, and what stands in the way; `findings` are problems with which it works on."""

    status: str
    database: str
    engine: str
    profile_files: list[FileProblemResource]
    findings: list[Finding]


class Version(BaseModel):
    """What runs here."""

    version: str
    engine: dict[str, Any] | None
    engine_problem: str | None = None


def router(
    database: Database,
    probe: EngineProbe,
    file_problems: Callable[[], Sequence[FileProblem]],
    *findings: Callable[[], Sequence[Finding]],
) -> APIRouter:
    """Routes over the database, the engine probe, what is wrong with profile files, and with the service itself."""
    routes = APIRouter(tags=["system"])

    @routes.get("/health")
    async def health() -> Health:
        """The service lives."""
        return Health()

    @routes.get("/ready", responses={503: {"model": Ready, "description": "it cannot take work"}})
    async def ready(response: Response) -> Ready:
        """Whether it can take work: database writable, engine found. 503 otherwise."""
        database_says, engine_says = await asyncio.gather(_database(), _engine())
        is_ready = database_says == engine_says == "ok"
        response.status_code = 200 if is_ready else 503
        return Ready(
            status="ok" if is_ready else "unavailable",
            database=database_says,
            engine=engine_says,
            profile_files=[
                FileProblemResource(file=found.file, line=found.line, message=found.message)
                for found in file_problems()
            ],
            findings=[each for found in findings for each in found()],
        )

    @routes.get("/version")
    async def version() -> Version:
        """Product version, the engine's path and build, what it can do."""
        try:
            facts = await probe.facts()
        except EngineError as problem:
            return Version(version=__version__, engine=None, engine_problem=problem.message)
        engine = {
            "kind": facts.kind.value,
            "command": list(facts.command),
            "build": facts.build,
            "methods": sorted(facts.spec_types),
            "devices": [device.name for device in facts.devices],
        }
        return Version(version=__version__, engine=engine)

    async def _database() -> str:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await database.write(lambda session: session.exec(text("SELECT 1")))  # type: ignore[call-overload]
        except PacelineError as problem:
            return problem.message
        except TimeoutError:
            return (
                f"the database takes no writes: one has waited for {_PATIENCE_SECONDS:g} s. Another program holds its "
                "lock, or its disk stands still"
            )
        return "ok"

    async def _engine() -> str:
        try:
            await probe.facts()
        except EngineError as problem:
            return problem.message
        return "ok"

    return routes
