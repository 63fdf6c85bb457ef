"""Texts and launch contexts that many rows share, each written once and pointed at by number.

Only the writer thread uses these, inside its transactions. Numbers are remembered before they are committed, so
whoever learns of a rollback must `forget` them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import Session, col

from app.instances.lease import LaunchContext
from app.telemetry.tables import LabelRow, LaunchContextRow

# Names and errors come from outside and may be all different: the memory starts afresh past this many.
_REMEMBERED_MOST = 4096
# SQLite takes at most 32,766 variables in a statement; a few hundred already cost next to nothing each.
_IN_MOST = 500


class Labels:
    """Numbers of texts. Rows of requests get theirs here and nowhere else, so what is not given and not in a row can
    go (app/telemetry/unused_labels.py).
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._given: set[int] | None = None

    def forget(self) -> None:
        """Look everything up again."""
        self._numbers.clear()

    def numbers(self, session: Session, texts: Iterable[str]) -> dict[str, int]:
        """The number of each text, given now where it had none."""
        wanted = set(texts)
        found = {text: self._numbers[text] for text in wanted if text in self._numbers}
        missing = sorted(wanted - found.keys())
        if missing:
            found.update(self._looked_up(session, missing))
        if (given := self._given) is not None:
            given.update(found.values())
        return found

    def note_given(self) -> None:
        """From now on note which numbers are given; on the writer thread, before it is read what rows point at."""
        self._given = set()

    def note_no_more(self) -> None:
        """Nothing will be deleted now."""
        self._given = None

    def delete(self, session: Session, numbers: Sequence[int]) -> int:
        """Delete those of the numbers that were not given meanwhile; how many there were."""
        if (given := self._given) is None:
            return 0
        # Remembered ones must not be given again; that the transaction may fail does no harm.
        self.forget()
        gone = [number for number in numbers if number not in given]
        return session.connection().execute(delete(LabelRow).where(col(LabelRow.id).in_(gone))).rowcount

    def _looked_up(self, session: Session, missing: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        connection = session.connection()
        connection.execute(insert(LabelRow).on_conflict_do_nothing(), [{"text": text} for text in missing])
        if len(self._numbers) + len(missing) > _REMEMBERED_MOST:
            self._numbers.clear()
        for start in range(0, len(missing), _IN_MOST):
            part = missing[start : start + _IN_MOST]
            rows = connection.execute(select(col(LabelRow.text), col(LabelRow.id)).where(col(LabelRow.text).in_(part)))
            found.update({text: number for text, number in rows if number is not None})
        if len(missing) <= _REMEMBERED_MOST:
            self._numbers.update((text, found[text]) for text in missing)
        return found


class Contexts:
    """Numbers of launch contexts; a bare profile id stands for a request that no instance took."""

    def __init__(self) -> None:
        self._numbers: dict[LaunchContext | str, int] = {}

    def forget(self) -> None:
        """Look everything up again."""
        self._numbers.clear()

    def number(self, session: Session, context: LaunchContext | str) -> int:
        """The number of a context, given now where it had none."""
        known = self._numbers.get(context)
        if known is not None:
            return known
        if len(self._numbers) >= _REMEMBERED_MOST:
            self._numbers.clear()
        number = _find_or_add(session, context)
        self._numbers[context] = number
        return number


def _find_or_add(session: Session, context: LaunchContext | str) -> int:
    launched = None if isinstance(context, str) else context
    values: dict[str, Any] = {
        "profile_id": context if isinstance(context, str) else context.profile_id,
        "revision": launched and launched.revision,
        "engine_build": launched and launched.engine_build,
        "argv_hash": launched and launched.argv_hash,
        "device_set": launched and launched.device_set,
        "method": launched and launched.method,
    }
    # IS, not =: NULL must find NULL.
    same = [getattr(LaunchContextRow, name).is_not_distinct_from(value) for name, value in values.items()]
    connection = session.connection()
    found: Any = connection.execute(select(col(LaunchContextRow.id)).where(*same)).scalar()
    if found is None:
        statement = insert(LaunchContextRow).values(**values).returning(col(LaunchContextRow.id))
        found = connection.execute(statement).scalar_one()
    return int(found)
