"""What would fit and run best: for a profile, or for files alone."""

import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel

from app.api.machine_body import MachineBody
from app.api.resources import Page
from app.findings import Finding
from app.launch.report import PlacementReport
from app.launch.suggestions import LaunchSuggestions
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile, ModelPath, document_of, parse_profile

_PART = re.compile(r"[-._]\d{5}-of-\d{5}$")
_ID_CHARACTERS_MAX = 48


class OtherMachine(BaseModel):
    """Ask about another machine."""

    model_config = {"extra": "forbid", "frozen": True}

    machine: MachineBody | None = None


class Files(OtherMachine):
    """A target, and a draft model if there is one, as paths in the model folders."""

    target: ModelPath
    draft: ModelPath | None = None


class SuggestionResource(BaseModel):
    """A whole profile, why it is suggested, and what its check says."""

    profile: dict[str, Any]
    reason: str
    report: PlacementReport


class SuggestionPage(Page[SuggestionResource]):
    """The suggestions; `findings` say what of the wish they leave out, or why there are none."""

    findings: list[Finding]


def router(catalog: ProfileCatalog, suggestions: LaunchSuggestions) -> APIRouter:
    """Routes over the catalog and the search."""
    routes = APIRouter(tags=["check"])

    @routes.post("/profiles/{profile_id}/suggest")
    async def suggest_for_profile(
        profile_id: str, question: Annotated[OtherMachine | None, Body()] = None
    ) -> SuggestionPage:
        """Profiles that would fit and run best, ranked, for the files and the wishes of this one."""
        stored = catalog.get(profile_id)
        return await _page(stored.profile, question.machine if question else None)

    @routes.post("/suggest")
    async def suggest_for_files(question: Files) -> SuggestionPage:
        """The same for files alone."""
        draft = {"method": "none", "draft": {"path": question.draft}} if question.draft else {}
        wish = {
            "id": free_id(question.target, catalog.names()),
            "target": {"path": question.target},
            "speculation": draft,
        }
        return await _page(parse_profile(wish), question.machine)

    async def _page(wish: LaunchProfile, machine: MachineBody | None) -> SuggestionPage:
        found = await suggestions.suggest(wish, machine=machine.value() if machine else None)
        return SuggestionPage(
            items=[
                SuggestionResource(profile=document_of(each.profile), reason=each.reason, report=each.report)
                for each in found.profiles
            ],
            findings=list(found.findings),
        )

    return routes


def free_id(path: str, taken: Collection[str]) -> str:
    """An id after the file's name that no profile answers to."""
    stem = _PART.sub("", PurePosixPath(path).stem).lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("._-")[:_ID_CHARACTERS_MAX] or "suggested"
    number, chosen = 1, name
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    return chosen
