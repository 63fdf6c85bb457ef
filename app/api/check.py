"""The dry run of a launch."""

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from app.inventory.devices import Device, Host, Machine
from app.launch.check import LaunchCheck
from app.launch.report import PlacementReport
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile, document_of, merge_patch, parse_profile


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceBody(_Strict):
    """A device of a machine that is asked about."""

    name: str
    description: str = ""
    uuid: str | None = None
    pci_bus_id: str | None = None
    integrated: bool = False
    total_bytes: int = Field(0, ge=0)
    free_bytes: int = Field(0, ge=0)


class HostBody(_Strict):
    """The host of a machine that is asked about."""

    total_bytes: int | None = Field(None, ge=0)
    available_bytes: int | None = Field(None, ge=0)
    physical_cores: int | None = Field(None, ge=1)


class MachineBody(_Strict):
    """A machine that a placement is judged against, instead of this one."""

    devices: list[DeviceBody] = []
    host: HostBody = HostBody()

    def value(self) -> Machine:
        """The domain value."""
        return Machine(tuple(Device(**device.model_dump()) for device in self.devices), Host(**self.host.model_dump()))


class WhatIf(_Strict):
    """Ask about another machine, or about changes to the profile (a JSON merge patch)."""

    machine: MachineBody | None = None
    patch: dict[str, Any] = {}


class ProfileQuestion(_Strict):
    """Ask about a profile that is not stored."""

    profile: dict[str, Any]
    machine: MachineBody | None = None


def router(catalog: ProfileCatalog, check: LaunchCheck) -> APIRouter:
    """Routes over the catalog and the one check that a start uses too."""
    routes = APIRouter(tags=["check"])

    @routes.post("/profiles/{profile_id}/check")
    async def check_profile(profile_id: str, question: Annotated[WhatIf | None, Body()] = None) -> PlacementReport:
        """What a launch of this profile would do, with every finding and its fix."""
        question = question or WhatIf()
        stored = catalog.get(profile_id)
        profile = stored.profile
        if question.patch:
            profile = parse_profile(merge_patch(document_of(profile), question.patch))
        return await _report(profile, stored.revision, question.machine)

    @routes.post("/check")
    async def check_document(question: ProfileQuestion) -> PlacementReport:
        """The same for a profile in the body."""
        return await _report(parse_profile(question.profile), 0, question.machine)

    async def _report(profile: LaunchProfile, revision: int, machine: MachineBody | None) -> PlacementReport:
        checked = await check.check(profile, revision, machine=machine.value() if machine else None)
        return checked.report

    return routes
