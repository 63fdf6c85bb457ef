"""Acceptance windows, written into the database as they close."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future

import msgspec
from sqlmodel import Session

from app.database import Database
from app.errors import DatabaseUnavailable
from app.identifiers import TimeOrderedIds
from app.instances.windows import AcceptanceWindowClosed
from app.telemetry.interning import Contexts
from app.telemetry.tables import AcceptanceWindowRow

_log = logging.getLogger(__name__)


class WindowRecorder:
    """Subscribes to AcceptanceWindowClosed and writes a row of each; there are few, so each is a piece of its own."""

    def __init__(self, database: Database, ids: TimeOrderedIds | None = None) -> None:
        self._database = database
        self._ids = ids or TimeOrderedIds()

    def on_window(self, event: AcceptanceWindowClosed) -> None:
        """Take note; the row is on disk a moment later. Never raises."""
        identifier = self._ids.next()
        try:
            written = self._database.submit(lambda session: _write(session, identifier, event), urgent=False)
        except DatabaseUnavailable as failure:
            _log.error("an acceptance window goes unrecorded: %s", failure)
            return
        written.add_done_callback(_settle)


def _write(session: Session, identifier: int, event: AcceptanceWindowClosed) -> None:
    counts = event.counts
    session.add(
        AcceptanceWindowRow(
            id=identifier,
            # Looked up each time: there is one window where there are hundreds of requests.
            context_id=Contexts().number(session, event.context),
            instance_id=event.instance_id,
            started_at_milliseconds=event.started_at_milliseconds,
            ended_at_milliseconds=event.ended_at_milliseconds,
            drafts=counts.drafts,
            draft_tokens=counts.draft_tokens,
            accepted_tokens=counts.accepted_tokens,
            accepted_by_position=_as_json(counts.accepted_by_position),
            generated_tokens=counts.generated_tokens,
            generation_us=counts.generation_us,
            rounded_to=counts.rounded_to,
        )
    )


def _as_json(counts: Sequence[int] | None) -> str | None:
    return None if counts is None else msgspec.json.encode(counts).decode()


def _settle(written: "Future[None]") -> None:
    if not written.cancelled() and (failure := written.exception()) is not None:
        _log.error("an acceptance window was not recorded: %s", failure, exc_info=failure)
