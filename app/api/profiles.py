"""/profiles: launch profiles and their history."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.api.json_body import read_json
from app.api.resources import Page
from app.api.schemas import inlined_schema
from app.errors import ProfileChanged, ProfileInvalid
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile, document_of, parse_profile
from app.profiles.stored import StoredProfile

MERGE_PATCH = "application/merge-patch+json"

IfMatch = Annotated[str | None, Header(description='the ETag that was read, such as `"3"`; another one answers 412')]
StatusOf = Callable[[str], Mapping[str, Any]]


class ProfileStatus(BaseModel):
    """What becomes of the profile now. Read-only: ignored in what is written."""

    state: str
    instance_id: str | None = None
    managed_by: str | None = None
    backoff_until: datetime | None = None
    last_failure: str | None = None


class ProfileResource(LaunchProfile):
    """A launch profile as it stands."""

    revision: int
    status: ProfileStatus


class RevisionResource(BaseModel):
    """What a profile said at one revision, as it was written then."""

    revision: int
    created_at: datetime
    profile: dict[str, Any]


def router(catalog: ProfileCatalog, status_of: StatusOf) -> APIRouter:
    """The routes of profiles. `status_of` tells `state`, `instance_id`, `backoff_until` and `last_failure` of an id."""
    routes = APIRouter(prefix="/profiles", tags=["profiles"])

    def resource(stored: StoredProfile) -> dict[str, Any]:
        status = {"managed_by": stored.managed_by, **status_of(stored.profile.id)}
        shown = ProfileStatus.model_validate(status).model_dump(mode="json")
        return {**document_of(stored.profile), "revision": stored.revision, "status": shown}

    def answer(stored: StoredProfile, status_code: int = 200) -> JSONResponse:
        headers = {"ETag": f'"{stored.revision}"'}
        if status_code == 201:
            headers["Location"] = f"/profiles/{stored.profile.id}"
        return JSONResponse(resource(stored), status_code, headers)

    @routes.get("", response_model=Page[ProfileResource])
    async def list_profiles() -> Response:
        """Every profile, by id."""
        return JSONResponse({"items": [resource(stored) for stored in catalog.list()], "next_cursor": None})

    @routes.post(
        "",
        status_code=201,
        response_model=ProfileResource,
        responses={
            201: {"headers": _PLACE},
            409: {"description": "the id exists"},
            422: {"description": "fields that do not validate"},
        },
        openapi_extra=_body(LaunchProfile),
    )
    async def create_profile(request: Request) -> Response:
        """Make a profile. Everything but `id` and `target.path` has a default."""
        return answer(await catalog.create(parse_profile(await read_json(request))), 201)

    @routes.get("/{profile_id}", response_model=ProfileResource, responses={200: {"headers": _TAG}, **_NOT_FOUND})
    async def read_profile(profile_id: str) -> Response:
        """One profile. Its ETag is its revision: it does not cover `status`."""
        return answer(catalog.get(profile_id))

    @routes.put(
        "/{profile_id}",
        response_model=ProfileResource,
        responses={
            200: {"headers": _TAG},
            201: {"model": ProfileResource, "description": "it was not there before", "headers": _PLACE},
            **_REFUSED,
        },
        openapi_extra=_body(LaunchProfile),
    )
    async def write_profile(profile_id: str, request: Request, if_match: IfMatch = None) -> Response:
        """Replace a profile whole, or make it. A write that changes nothing makes no new revision."""
        profile = parse_profile(_with_id(await read_json(request), profile_id))
        expected = _expected_revision(catalog, profile_id, if_match)
        if catalog.find(profile_id) is None:
            return answer(await catalog.create(profile), 201)
        return answer(await catalog.replace(profile, expected))

    @routes.patch(
        "/{profile_id}",
        response_model=ProfileResource,
        responses={200: {"headers": _TAG}, **_NOT_FOUND, **_REFUSED},
        openapi_extra=_body(None),
    )
    async def change_profile(profile_id: str, request: Request, if_match: IfMatch = None) -> Response:
        """Change parts of a profile by a JSON merge patch (RFC 7396): null restores a default."""
        patch = await read_json(request, MERGE_PATCH)
        return answer(await catalog.patch(profile_id, patch, _expected_revision(catalog, profile_id, if_match)))

    @routes.delete("/{profile_id}", status_code=204, responses={**_NOT_FOUND, **_REFUSED})
    async def delete_profile(profile_id: str, if_match: IfMatch = None) -> Response:
        """End a profile that does not run. Its history stays."""
        await catalog.delete(profile_id, _expected_revision(catalog, profile_id, if_match))
        return Response(status_code=204)

    @routes.get("/{profile_id}/revisions", responses=_NOT_FOUND)
    def list_revisions(profile_id: str) -> Page[RevisionResource]:
        """The history, newest first, also of a profile that was deleted."""
        return Page(
            items=[
                RevisionResource(revision=entry.revision, created_at=entry.created_at, profile=dict(entry.document))
                for entry in catalog.revisions(profile_id)
            ]
        )

    return routes


_TAG = {"ETag": {"description": "the revision", "required": True, "schema": {"type": "string"}}}
_PLACE = {**_TAG, "Location": {"description": "the profile's path", "required": True, "schema": {"type": "string"}}}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "there is no such profile"}}
_REFUSED: dict[int | str, dict[str, Any]] = {
    409: {"description": "a file owns the profile, or it runs"},
    412: {"description": "If-Match named another revision"},
    422: {"description": "fields that do not validate"},
}


def _body(model: type[BaseModel] | None) -> dict[str, Any]:
    """The request body for OpenAPI: the handlers read it themselves."""
    if model is None:
        types = {kind: {"schema": {"type": "object"}} for kind in (MERGE_PATCH, "application/json")}
    else:
        types = {"application/json": {"schema": inlined_schema(model)}}
    return {"requestBody": {"required": True, "content": types}}


def _with_id(document: Any, profile_id: str) -> Any:
    """The document of the profile at this path; one that names another is refused."""
    if not isinstance(document, Mapping):
        return document
    if document.get("id", profile_id) != profile_id:
        message = f'the path says "{profile_id}", the body {document["id"]!r}'
        raise ProfileInvalid(f"the profile is not valid: id: {message}", [{"field": "id", "message": message}])
    return {**document, "id": profile_id}


def _expected_revision(catalog: ProfileCatalog, profile_id: str, if_match: str | None) -> int | None:
    """The revision that the catalog has to insist on; None where the caller does not mind."""
    if if_match is None:
        return None
    current = catalog.find(profile_id)
    if current is None:
        raise ProfileChanged(
            f'If-Match is {if_match}, but there is no profile "{profile_id}"', profile_id=profile_id, revision=None
        )
    # A proxy that compresses marks the tag as weak; a revision is exact all the same.
    named = {int(digits) for digits in re.findall(r'(?:W/)?"(\d{1,15})"', if_match)}
    if if_match.strip() == "*" or current.revision in named:
        return current.revision
    return min(named, default=0)
