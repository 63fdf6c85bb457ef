"""The dry run of a launch."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict

from app.api.machine_body import MachineBody
from app.instances.room import Room
from app.launch.check import LaunchCheck
from app.launch.report import PlacementReport
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile, document_of, merge_patch, parse_profile
from app.profiles.stored import UNSTORED, text_of


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WhatIf(_Strict):
    """Ask about another machine, or about changes to the profile (a JSON merge patch)."""

    machine: MachineBody | None = None
    patch: dict[str, Any] = {}


class ProfileQuestion(_Strict):
    """Ask about a profile that is not stored."""

    profile: dict[str, Any]
    machine: MachineBody | None = None


def router(
    catalog: ProfileCatalog, check: LaunchCheck, room: Callable[[LaunchProfile, int], Awaitable[Room]]
) -> APIRouter:
    """Routes over the catalog and the check that a start uses too; `room` adds what a start would do to others."""
    routes = APIRouter(tags=["check"])

    @routes.post("/profiles/{profile_id}/check")
    async def check_profile(profile_id: str, question: Annotated[WhatIf | None, Body()] = None) -> PlacementReport:
        """What a launch of this profile would do, with every finding and its fix."""
        question = question or WhatIf()
        stored = catalog.get(profile_id)
        profile = stored.profile
        if question.patch:
            profile = _storable(merge_patch(document_of(profile), question.patch))
        # What was measured is of the profile as it is stored.
        revision = stored.revision if profile == stored.profile else UNSTORED
        return await _report(profile, revision, question.machine)

    @routes.post("/check")
    async def check_document(question: ProfileQuestion) -> PlacementReport:
        """The same for a profile in the body."""
        return await _report(_storable(question.profile), UNSTORED, question.machine)

    async def _report(profile: LaunchProfile, revision: int, machine: MachineBody | None) -> PlacementReport:
        if machine is None:
            return (await room(profile, revision)).checked.report
        return (await check.check(profile, revision, machine=machine.value())).report

    return routes


def _storable(document: Any) -> LaunchProfile:
    """The profile. Raises ProfileInvalid, also where it could not be stored: what is judged could be launched."""
    profile = parse_profile(document)
    text_of(profile)
    return profile
