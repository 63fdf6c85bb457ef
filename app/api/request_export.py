"""GET /requests/export: recorded requests as a file."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from app.api.request_filters import filters, only
from app.database import Database
from app.telemetry.export import MEDIA_TYPES, Export, ExportFormat, export_as
from app.telemetry.queries import RequestFilters, list_requests

# A page is two milliseconds of work: so long a stream may wait.
_PAGE_ROWS = 40
_MEDIA = {media_type.partition(";")[0]: {"schema": {"type": "string"}} for media_type in MEDIA_TYPES.values()}


def router(database: Database) -> APIRouter:
    """The route over `database`."""
    routes = APIRouter(tags=["requests"])

    @routes.get(
        "/requests/export",
        dependencies=[only("format")],
        response_class=StreamingResponse,
        responses={200: {"content": _MEDIA}, 501: {"description": "`parquet` needs a package that is not there"}},
    )
    async def export_requests(
        chosen: Annotated[RequestFilters, Depends(filters)],
        form: Annotated[ExportFormat, Query(alias="format", description="what the file shall be")] = ExportFormat.CSV,
    ) -> StreamingResponse:
        """All that the filters leave, newest first, as a file; its columns are the members of a request."""
        export = await asyncio.to_thread(export_as, form)
        first, cursor = await asyncio.to_thread(page, database, chosen, None, export)
        return StreamingResponse(
            pieces(database, chosen, export, first, cursor),
            media_type=MEDIA_TYPES[form],
            headers={"Content-Disposition": f'attachment; filename="requests.{form.value}"'},
        )

    return routes


async def pieces(
    database: Database, chosen: RequestFilters, export: Export, first: bytes, cursor: str | None
) -> AsyncIterator[bytes]:
    """Page after page after the first, each a question of its own: a reader who is slow holds nothing.

    After each the streams have the service to themselves for as long as it took.
    """
    if first:
        yield first
    while cursor is not None:
        began = time.monotonic()
        piece, cursor = await asyncio.to_thread(page, database, chosen, cursor, export)
        await asyncio.sleep(time.monotonic() - began)
        if piece:
            yield piece
    yield await asyncio.to_thread(export.end)


def page(database: Database, chosen: RequestFilters, cursor: str | None, export: Export) -> tuple[bytes, str | None]:
    """The bytes that follow with one page, and the cursor of the next. Raises QueryInvalid."""
    with database.read() as session:
        found = list_requests(session, chosen, _PAGE_ROWS, cursor)
    return export.add(found.items), found.next_cursor
