"""Acceptance windows as they are recorded."""

from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session

from app.identifiers import TimeOrderedIds
from app.instances.windows import AcceptanceWindowClosed
from app.telemetry.interning import Contexts
from app.telemetry.tables import AcceptanceWindowRow


class RecordedWindow(msgspec.Struct, frozen=True, tag_field="kind", tag="window"):
    """A window and the id of its row, by which it is known however often it is written.

    The tag is for the spill file.
    """

    identifier: int
    window: AcceptanceWindowClosed


class WindowRecorder:
    """Subscribes to AcceptanceWindowClosed, gives each window its id, and has `take` record it."""

    def __init__(self, take: Callable[[RecordedWindow], None], ids: TimeOrderedIds | None = None) -> None:
        self._take = take
        self._ids = ids or TimeOrderedIds()

    def on_window(self, event: AcceptanceWindowClosed) -> None:
        """Take note."""
        self._take(RecordedWindow(self._ids.next(), event))


def insert_windows(session: Session, windows: Sequence[RecordedWindow]) -> int:
    """Insert a row for each window that has none; how many had none."""
    # Looked up each time: there is one window where there are hundreds of requests.
    contexts = Contexts()
    statement = insert(AcceptanceWindowRow).on_conflict_do_nothing()
    connection = session.connection()
    inserted = 0
    for each in windows:
        window, counts = each.window, each.window.counts
        values = {
            "id": each.identifier,
            "context_id": contexts.number(session, window.context),
            "instance_id": window.instance_id,
            "started_at_milliseconds": window.started_at_milliseconds,
            "ended_at_milliseconds": window.ended_at_milliseconds,
            "drafts": counts.drafts,
            "draft_tokens": counts.draft_tokens,
            "accepted_tokens": counts.accepted_tokens,
            "accepted_by_position": _as_json(counts.accepted_by_position),
            "generated_tokens": counts.generated_tokens,
            "generation_us": counts.generation_us,
            "rounded_to": counts.rounded_to,
        }
        inserted += connection.execute(statement, values).rowcount
    return inserted


def _as_json(counts: Sequence[int] | None) -> str | None:
    return None if counts is None else msgspec.json.encode(counts).decode()
