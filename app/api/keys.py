"""/keys: who may use the service."""

import ipaddress
from collections.abc import Callable
from datetime import datetime

from fastapi import APIRouter, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict

from app.access.key import Key, KeyKind
from app.access.key_book import KeyBook
from app.access.refusals import Refusal
from app.api.resources import Page
from app.errors import AccessDenied


class KeyResource(BaseModel):
    """A key, without its secret. `profiles` is null where it may use all; `last_used_at` may be minutes behind."""

    name: str
    kind: KeyKind
    profiles: list[str] | None
    created_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None

    @classmethod
    def of(cls, key: Key) -> "KeyResource":
        """The resource that shows this key."""
        return cls(**_members(key))


class MadeKeyResource(KeyResource):
    """A key that was just made. Its `secret` is what clients show; it is told this once."""

    secret: str


class NewKey(BaseModel):
    """The key to make. It never expires, and may use every profile, unless something else is said."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: KeyKind = KeyKind.INFERENCE
    profiles: list[str] | None = None
    expires_at: AwareDatetime | None = None


def router(book: KeyBook, demand_profile: Callable[[str], object]) -> APIRouter:
    """The routes of keys. `demand_profile` raises ProfileNotFound for an id that no profile has."""
    routes = APIRouter(prefix="/keys", tags=["keys"])

    @routes.get("")
    async def list_keys() -> Page[KeyResource]:
        """Every key by name, that of the settings (`configured`) first; expired ones too."""
        return Page(items=[KeyResource.of(key) for key in book.list()])

    @routes.post(
        "",
        status_code=201,
        responses={
            404: {"description": "one of `profiles` is no profile"},
            409: {"description": "the name is taken, or the first key is not an admin key"},
            422: {"description": "no such key can be made"},
        },
    )
    async def make_key(wanted: NewKey, request: Request, response: Response) -> MadeKeyResource:
        """Make a key. The first must be an admin key, made on this machine: from then on every request needs one."""
        if book.is_empty:
            _demand_this_machine(request)
        for profile_id in wanted.profiles or ():
            demand_profile(profile_id)
        made = await book.make(wanted.name, wanted.kind, profiles=wanted.profiles, expires_at=wanted.expires_at)
        response.headers["Cache-Control"] = "no-store"
        return MadeKeyResource(**_members(made.key), secret=made.secret)

    @routes.delete(
        "/{name}",
        status_code=204,
        responses={404: {"description": "there is no such key"}, 409: {"description": "it cannot go"}},
    )
    async def revoke_key(name: str) -> Response:
        """Revoke a key: the next request that shows it is refused."""
        await book.revoke(name)
        return Response(status_code=204)

    return routes


def _members(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "kind": key.kind,
        "profiles": None if key.profiles is None else sorted(key.profiles),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "last_used_at": key.last_used_at,
    }


def _demand_this_machine(request: Request) -> None:
    """Whoever makes the first key shuts everybody else out."""
    if request.client is None:
        return
    try:
        if ipaddress.ip_address(request.client.host).is_loopback:
            return
    except ValueError:
        pass
    raise AccessDenied(
        "the first key is made on the machine that the service runs on: `paceline keys make NAME --admin` there",
        status=403,
        reason=Refusal.NOT_PERMITTED.value,
    )
