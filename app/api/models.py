"""GET /models: the model files that a profile can name."""

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from app.api.resources import Page
from app.inventory.gguf_cursor import shown
from app.inventory.model_scan import FoundModel, ModelScan


class ModelShapeResource(BaseModel):
    """What the headers of a model say; null stands for what they leave out."""

    model_config = ConfigDict(from_attributes=True)

    kind: str
    architecture: str
    name: str | None
    size_bytes: int
    parts: int
    block_count: int
    nextn_layers: int
    has_nextn_tensors: bool
    expert_count: int
    expert_used_count: int
    context_length_trained: int | None
    embedding_length: int | None
    vocabulary_size: int | None
    tokenizer_model: str | None
    quantisation: str | None
    largest_type: str | None
    block_size: int | None
    has_own_embeddings: bool
    has_own_head: bool
    has_chat_template: bool
    has_loadable_names: bool


class ModelResource(BaseModel):
    """One model in the model folders. `path` is what a profile writes; either `shape` or `error` is null."""

    path: str
    folder: str
    shape: ModelShapeResource | None
    error: str | None

    @classmethod
    def of(cls, found: FoundModel) -> "ModelResource":
        """The resource that shows this model."""
        shape: Any = found.shape
        return cls(
            path=found.path,
            folder=shown(found.folder),
            shape=None if shape is None else ModelShapeResource.model_validate(shape),
            error=found.error,
        )


def router(scan: ModelScan) -> APIRouter:
    """The route over the scan of the model folders."""
    routes = APIRouter(tags=["models"])

    @routes.get("/models")
    async def list_models() -> Page[ModelResource]:
        """GGUF files in the model folders with their shape: a split set once, unreadable files with their error."""
        return Page(items=[ModelResource.of(found) for found in await asyncio.to_thread(scan.scan)])

    return routes
