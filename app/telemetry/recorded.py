"""What is recorded, as rows: finished requests and acceptance windows."""

from collections.abc import Sequence

from sqlmodel import Session

from app.proxy.observer import RequestFinished
from app.telemetry.rows import RequestRows
from app.telemetry.windows import RecordedWindow, insert_windows

Recorded = RequestFinished | RecordedWindow


class Rows:
    """Inserts rows of both kinds, on the writer thread of the database."""

    def __init__(self) -> None:
        self._requests = RequestRows()
        self.labels = self._requests.labels

    def insert(self, session: Session, events: Sequence[Recorded]) -> int:
        """Insert a row for each event that has none; how many had none.

        Whatever is raised, here or by the commit, calls for `forget`.
        """
        windows = [event for event in events if isinstance(event, RecordedWindow)]
        if not windows:
            return self._requests.insert(session, events)  # type: ignore[arg-type]
        requests = [event for event in events if isinstance(event, RequestFinished)]
        try:
            return self._requests.insert(session, requests) + insert_windows(session, windows)
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """The numbers that were given last may not be there."""
        self._requests.forget()
