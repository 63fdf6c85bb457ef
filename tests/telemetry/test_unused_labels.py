"""Texts that no row has any more go, those that a row has stay, also beside a recorder that goes on."""

import asyncio
from collections.abc import Callable

import pytest
from fakes.finished_requests import START_SECONDS, finished, rejected
from sqlalchemy import text

from app.database import Database
from app.proxy.observer import RequestFinished
from app.telemetry.queries import RequestFilters, list_requests
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.rows import RequestRows
from app.telemetry.unused_labels import UnusedLabels

POINTERS = ("requested_model", "route_reason", "error", "finish_reason", "client")


def insert(database: Database, rows: RequestRows, *events: RequestFinished) -> None:
    database.submit(lambda session: rows.insert(session, events)).result()


def delete_rows(database: Database, condition: str) -> int:
    statement = text(f"DELETE FROM request WHERE {condition}")  # noqa: S608
    return database.submit(lambda session: session.connection().execute(statement).rowcount).result()


def labels(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.connection().exec_driver_sql("SELECT text FROM label ORDER BY text").scalars())


def models(database: Database) -> list[str | None]:
    """What the rows say, newest first."""
    with database.read() as session:
        return [each.requested_model for each in list_requests(session, RequestFilters(), 10_000).items]


def pointing_nowhere(database: Database) -> int:
    """Rows with a number that no label has."""
    lost = " OR ".join(f"{name}_label NOT IN (SELECT id FROM label)" for name in POINTERS)  # noqa: S608
    with database.read() as session:
        return int(session.execute(text(f"SELECT count(*) FROM request WHERE {lost}")).scalar_one())  # noqa: S608


def sweep(database: Database, rows: RequestRows, pause: Callable[[float], object] = lambda _: None) -> int:
    return UnusedLabels(database, rows.labels, pause).delete()


def named(number: int, model: str) -> RequestFinished:
    return rejected(number, requested_model=model)


def test_what_no_row_has_goes_whichever_column_had_it(database: Database) -> None:
    rows = RequestRows()
    report = finished().report
    insert(database, rows, finished(0), finished(1, requested_model="m", route_reason="r", client="c", error="e"))
    assert delete_rows(database, "requested_model_label = (SELECT id FROM label WHERE text = 'm')") == 1
    assert sweep(database, rows) == 4
    assert labels(database) == ["gemma", "id", report.finish_reason]
    assert sweep(database, rows) == 0


def test_a_text_that_went_can_come_again(database: Database) -> None:
    """Its number is remembered no longer."""
    rows = RequestRows()
    insert(database, rows, named(0, "a"), named(1, "b"))
    delete_rows(database, "requested_model_label = (SELECT id FROM label WHERE text = 'b')")
    assert sweep(database, rows) == 1
    insert(database, rows, named(2, "b"))
    assert models(database) == ["b", "a"]
    assert pointing_nowhere(database) == 0


def test_a_text_that_a_row_gets_meanwhile_stays(database: Database) -> None:
    """One that no row had when rows were read, and that still waits for its turn to be deleted."""
    rows = RequestRows()
    insert(database, rows, *(named(number, f"m{number:04}") for number in range(250)), named(1000, "stays"))
    delete_rows(database, "requested_model_label <> (SELECT id FROM label WHERE text = 'stays')")
    pauses = []

    def come(_: float) -> None:
        """After the first hundred were looked at."""
        pauses.append(1)
        if len(pauses) == 1:
            insert(database, rows, named(2000, "m0249"), named(2001, "m0000"), named(2002, "new"))

    assert sweep(database, rows, come) == 249
    assert models(database) == ["new", "m0000", "m0249", "stays"]
    assert pointing_nowhere(database) == 0
    assert {"m0000", "m0249", "new", "stays"} < set(labels(database))


def test_all_rows_are_read_however_many_pages(database: Database) -> None:
    rows = RequestRows()
    for count in (999, 1, 1, 1000):
        first = len(models(database))
        insert(database, rows, *(named(number, f"m{number}") for number in range(first, first + count)))
        assert sweep(database, rows) == 0
        assert pointing_nowhere(database) == 0


def test_a_transaction_that_fails_loses_nothing(database: Database) -> None:
    rows = RequestRows()
    insert(database, rows, named(0, "a"))
    delete_rows(database, "1")
    unused = UnusedLabels(database, rows.labels, lambda _: None)

    def fail(session: object) -> None:
        rows.labels.note_given()
        assert rows.labels.delete(session, [1, 2]) == 2  # type: ignore[arg-type]
        raise ValueError("undone")

    with pytest.raises(ValueError, match="undone"):
        database.submit(fail).result()
    insert(database, rows, named(1, "a"))
    assert unused.delete() == 0
    assert models(database) == ["a"]
    assert pointing_nowhere(database) == 0


def test_without_notes_nothing_goes(database: Database) -> None:
    rows = RequestRows()
    insert(database, rows, named(0, "a"))
    delete_rows(database, "1")
    assert database.submit(lambda session: rows.labels.delete(session, [1, 2])).result() == 0


def test_it_is_worth_it_where_there_are_many_and_rows_went(database: Database) -> None:
    rows = RequestRows()
    unused = UnusedLabels(database, rows.labels, lambda _: None)
    insert(database, rows, *(named(number, f"m{number}") for number in range(999)))
    assert not unused.is_due()
    insert(database, rows, named(999, "one more"))
    assert unused.is_due()
    unused.delete()
    assert not unused.is_due()
    unused.rows_went(100)
    assert not unused.is_due()
    assert unused.is_due(at_last=True)
    unused.rows_went(1)
    assert unused.is_due()


async def test_a_recorder_goes_on_while_what_it_remembers_goes(database: Database) -> None:
    recorder = Recorder(database)
    for number in range(1001):
        recorder.take(named(number, f"m{number}"))
    await recorder.flush()
    later = START_SECONDS + 10 * 86_400
    retention = Retention(database, days=1, bytes_most=0, labels=recorder.labels, clock=lambda: later)
    await asyncio.to_thread(retention.keep_up)
    assert labels(database) == []
    recorder.take(named(2000, "m1000"))
    await recorder.flush()
    assert models(database) == ["m1000"]
    assert pointing_nowhere(database) == 0


async def test_texts_of_clients_do_not_cost_the_rows_of_all(database: Database) -> None:
    """A client that asks for other models all the time: what it left goes first of all, and the size limit holds."""
    rows = RequestRows()
    for hour in range(4):
        some = [named(hour * 3600 + number, f"{hour}-{number} {'x' * 400}") for number in range(800)]
        insert(database, rows, *some, finished(hour * 3600 + 900))
    limit_bytes = used_bytes(database) // 2
    later = START_SECONDS + 10 * 86_400
    Retention(database, days=0, bytes_most=limit_bytes, labels=rows.labels, clock=lambda: later).keep_up()
    assert limit_bytes * 0.4 < used_bytes(database) <= limit_bytes
    assert 801 <= len(models(database)) <= 1602
    assert len(labels(database)) < 1700
    assert pointing_nowhere(database) == 0


def used_bytes(database: Database) -> int:
    with database.read() as session:
        run = session.connection().exec_driver_sql
        pages, free = (int(run(f"PRAGMA {name}").scalar_one()) for name in ("page_count", "freelist_count"))
        return (pages - free) * 4096
