"""Ids of clients are found again whatever they look like, read as they were given, and take little space."""

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from fakes.finished_requests import finished
from sqlalchemy.dialects import sqlite
from sqlmodel import col, select

from app.database import MIGRATIONS, Database, migration_connection
from app.errors import RequestNotFound
from app.identifiers import id_text
from app.telemetry.client_ids import CLIENT_KEY_SQL, client_key, packed, unpacked
from app.telemetry.queries import get_request, of_client
from app.telemetry.recorder import Recorder
from app.telemetry.tables import RequestRow

UUIDS = [
    "00000000-0000-0000-0000-000000000000",
    "a3bb189e-8bf9-3888-9912-ace4e6543002",
    "c232ab00-9414-11ec-b3c8-9f6bdeced846",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
]
OTHERS = [
    "mine",
    "",
    "0",
    UUIDS[1].upper(),
    UUIDS[1].replace("-", ""),
    UUIDS[1].replace("-", "x"),
    "{" + UUIDS[1][:34] + "}",
    "a3bb189e-8bf9-3888-9912-ace4e654300\u0662",
    "a3bb189e-8bf9-3888-99121ace4e654-002",
    "req-000017",
    "x" * 36,
    "ü" * 200,
]


@pytest.mark.parametrize("text", UUIDS)
def test_a_uuid_is_sixteen_bytes(text: str) -> None:
    stored = packed(text)
    assert stored == uuid.UUID(text).bytes
    assert isinstance(stored, bytes)
    assert unpacked(stored) == text


@pytest.mark.parametrize("text", OTHERS)
def test_any_other_stays_what_it_is(text: str) -> None:
    assert packed(text) == text


@pytest.mark.parametrize("text", UUIDS + OTHERS)
def test_the_key_is_what_the_database_makes_of_it(text: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        made = connection.execute(f"SELECT {CLIENT_KEY_SQL} FROM (SELECT ? AS client_request_id)", (packed(text),))  # noqa: S608
        assert made.fetchone() == (client_key(packed(text)),)


def test_uuids_that_one_clock_or_one_machine_made_have_different_keys() -> None:
    first = [client_key(uuid.uuid1(node=1, clock_seq=1).bytes) for _ in range(200)]
    assert len(set(first)) > 190
    moments = range(10**12, 10**12 + 200)
    assert len({client_key(moment.to_bytes(6, "big") + b"\x7c" + bytes(9)) for moment in moments}) == 200


async def test_each_is_found_and_read_as_it_was_given(recorder: Recorder, database: Database) -> None:
    events = [finished(number, client_request_id=text) for number, text in enumerate(UUIDS + OTHERS)]
    for event in events:
        recorder.on_request_finished(event)
    await recorder.flush()
    with database.read() as session:
        rows = session.exec(select(RequestRow).order_by(col(RequestRow.id))).all()
        assert [row.client_request_id for row in rows] == UUIDS + OTHERS
        for event in events:
            assert get_request(session, event.client_request_id or "").id == id_text(event.request_id)
        for missing in (UUIDS[1][:-1] + "3", "min", "mines", "ü" * 199):
            with pytest.raises(RequestNotFound):
                get_request(session, missing)


@pytest.mark.parametrize("text", [UUIDS[1], "mine"])
async def test_the_index_is_asked(text: str, recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(finished(client_request_id=text))
    await recorder.flush()
    statement = of_client(text).compile(dialect=sqlite.dialect(paramstyle="named"))
    values = {name: packed(value) if isinstance(value, str) else value for name, value in statement.params.items()}
    with closing(sqlite3.connect(database.path)) as connection:
        (step,) = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    assert "SEARCH request USING INDEX ix_request_client_request_key (client_request_key=?)" in step[3]


def test_ids_of_an_older_file_are_found(tmp_path: Path) -> None:
    """Written as text, with an index of the whole text."""
    url, texts = f"sqlite:///{tmp_path / 'paceline.db'}", UUIDS + OTHERS
    with migration_connection(url) as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS))
        command.upgrade(config, "0007")
        for number, text in enumerate([*texts, None], 1):
            connection.exec_driver_sql(
                "INSERT INTO request (id, endpoint_code, stream, outcome_code, duration_us, client_request_id) "
                "VALUES (?, 1, 1, 1, 1, ?)",
                (number, text),
            )
    database = Database(url)
    database.migrate()
    with database.read() as session:
        rows = session.exec(select(RequestRow).order_by(col(RequestRow.id))).all()
        assert [row.client_request_id for row in rows] == [*texts, None]
        found = [get_request(session, text).id for text in texts]
        assert found == [id_text(number) for number, _ in enumerate(texts, 1)]
        count = session.connection().exec_driver_sql
        kinds = count("SELECT typeof(client_request_id), count(*) FROM request GROUP BY 1")
        assert dict(kinds.all()) == {"blob": len(UUIDS), "text": len(OTHERS), "null": 1}
    database.close()
