"""Pages of requests by profile and method are the same whichever way leads to them, and take a few questions each."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from app.database import Database
from app.identifiers import first_id_at, id_text, parse_id
from app.telemetry.codes import CATEGORIES, OUTCOMES
from app.telemetry.queries import RequestFilters, list_requests

START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_ID = first_id_at(int(START.timestamp() * 1000))
# Row after row a second apart: `often` comes often, by 30 contexts, `seldom` as seldom as it has contexts, `long_ago`
# not any more, `one` is one context.
ROWS = 20_000
CONTEXTS = {"often": range(1, 31), "seldom": range(31, 61), "long_ago": range(61, 91), "one": range(91, 92)}
FILL = """
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows - 1)
INSERT INTO request (id, context_id, endpoint_code, stream, outcome_code, duration_us, category_code)
SELECT :first + n * 1048576000,
       CASE WHEN n % 500 = 7 THEN 31 + n / 500 % 30 WHEN n < 7000 THEN 61 + n * 7 % 30
            WHEN n % 2 THEN 1 + n * 11 / 2 % 30 ELSE 91 END,
       1, 1, CASE WHEN n % 97 = 3 THEN 6 ELSE 1 END, 1, 1 + n % 8
FROM numbers
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('pages') / 'paceline.db'}")
    database.migrate()
    database.start()

    def fill(session: Any) -> None:
        run = session.connection().exec_driver_sql
        for profile, numbers in CONTEXTS.items():
            for number in numbers:
                values = (number, profile, number, "none" if number % 2 else "draft")
                run("INSERT INTO launch_context (id, profile_id, revision, method) VALUES (?, ?, ?, ?)", values)
        session.connection().execute(text(FILL), {"rows": ROWS, "first": FIRST_ID})

    database.submit(fill).result()
    yield database
    database.close()


@pytest.fixture(scope="module")
def rows(database: Database) -> list[Any]:
    """Id, context, outcome, category; the newest first."""
    with database.read() as session:
        return list(
            session.connection().exec_driver_sql(
                "SELECT id, context_id, outcome_code, category_code FROM request ORDER BY id DESC"
            )
        )


def expected(rows: list[Any], filters: RequestFilters, before: int | None) -> list[int]:
    def is_asked_for(row: Any) -> bool:
        moment = START + timedelta(seconds=(row[0] - FIRST_ID) // 1048576000)
        return (
            (filters.profile is None or row[1] in CONTEXTS[filters.profile])
            and (filters.method is None or (row[1] % 2 == 1) == (filters.method == "none"))
            and (filters.outcome is None or row[2] == OUTCOMES.encode(filters.outcome))
            and (filters.category is None or row[3] == CATEGORIES.encode(filters.category))
            and (filters.since is None or moment >= filters.since)
            and (filters.until is None or moment < filters.until)
            and (before is None or row[0] < before)
        )

    return [row[0] for row in rows if is_asked_for(row)]


MORE = [
    {},
    {"outcome": "cancelled"},
    {"category": "code"},
    {"method": "draft"},
    {"since": START + timedelta(seconds=6500), "until": START + timedelta(seconds=15_000)},
    {"until": START + timedelta(seconds=40)},
]


@pytest.mark.parametrize("most", [40, 1000])
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("profile", [*CONTEXTS, None])
def test_the_newest_are_found(
    database: Database, rows: list[Any], profile: str | None, more: dict[str, Any], most: int
) -> None:
    filters = RequestFilters(profile=profile, **more)
    for before in (None, FIRST_ID + 12_345 * 1048576000):
        wanted = expected(rows, filters, before)
        with database.read() as session:
            page = list_requests(session, filters, most, None if before is None else id_text(before))
        assert [parse_id(record.id) for record in page.items] == wanted[:most]
        assert (page.next_cursor is not None) == (len(wanted) > most)


@pytest.mark.parametrize("profile", CONTEXTS)
def test_a_page_takes_a_few_questions_however_many_contexts(database: Database, profile: str) -> None:
    asked: list[str] = []
    with database.read() as session:
        engine = session.get_bind()

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            asked.append(statement)

        event.listen(engine, "before_cursor_execute", note)
        try:
            list_requests(session, RequestFilters(profile=profile), 40)
        finally:
            event.remove(engine, "before_cursor_execute", note)
    assert 4 <= len(asked) <= 9
