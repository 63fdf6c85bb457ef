"""GET /presets."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from app.api.resources import Page
from app.profiles.presets import PRESETS


class PresetResource(BaseModel):
    """A launch shape that comes built in."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    description: str
    when: str
    profile: dict[str, Any]


def router() -> APIRouter:
    """The route of presets."""
    routes = APIRouter(tags=["profiles"])

    @routes.get("/presets")
    async def list_presets() -> Page[PresetResource]:
        """Launch shapes that come built in: each a partial profile, to which an id and the files are added."""
        return Page(items=[PresetResource.model_validate(preset) for preset in PRESETS])

    return routes
