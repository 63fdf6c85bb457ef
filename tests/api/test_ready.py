"""GET /ready beside a database that others hold."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.cases import engine

from app.api.system import router
from app.database import Database
from app.findings import warning


class Found:
    """An engine that was asked before."""

    async def facts(self) -> object:
        return engine("CUDA0")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "paceline.db"


@pytest.fixture
def client(file: Path) -> Iterator[TestClient]:
    database = Database(f"sqlite:///{file}", linger_seconds=0.01)
    database.migrate()
    database.start()
    app = FastAPI()
    told = [lambda: (warning("one", "of one"),), lambda: (), lambda: (warning("two", "of another"),)]
    app.include_router(router(database, Found(), lambda: (), *told))  # type: ignore[arg-type]
    yield TestClient(app)
    database.close()


def test_whoever_probes_is_answered_before_the_lock_is_given_up(client: TestClient, file: Path) -> None:
    """SQLite waits five seconds for a lock, and would say that it is locked: most probes have gone by then."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        held = client.get("/ready")
        other.execute("ROLLBACK")
    assert (held.status_code, held.json()["status"], held.json()["engine"]) == (503, "unavailable", "ok")
    assert held.json()["database"].startswith("the database takes no writes: one has waited for 1 s.")
    assert client.get("/ready").json()["database"] == "ok"


def test_findings_of_all_who_have_some_are_listed(client: TestClient) -> None:
    ready = client.get("/ready")
    assert (ready.status_code, [found["rule"] for found in ready.json()["findings"]]) == (200, ["one", "two"])
