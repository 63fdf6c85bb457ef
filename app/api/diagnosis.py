"""GET /instances/{id}/diagnosis: what is wrong with an instance, or what its end says."""

from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter

from app.api.resources import Page
from app.errors import InstanceNotFound
from app.findings import Finding
from app.identifiers import parse_id


def router(diagnose: Callable[[int], Awaitable[Sequence[Finding] | None]]) -> APIRouter:
    """The route over `diagnose`, which answers None for an instance that it does not know."""
    routes = APIRouter(tags=["instances"])

    @routes.get("/instances/{instance_id}/diagnosis")
    async def diagnosis(instance_id: str) -> Page[Finding]:
        """Findings on how it runs now, each with evidence and fixes; of a life that is over, why it ended."""
        identifier = parse_id(instance_id)
        found = None if identifier is None else await diagnose(identifier)
        if found is None:
            raise InstanceNotFound(f"no instance {instance_id!r} is known: GET /instances lists them")
        return Page(items=list(found))

    return routes
