"""GET /requests/export."""

import csv
import io
import json
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pyarrow.parquet
import pytest
from fakes.finished_requests import PLAIN_CONTEXT, finished
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.no_requests import NoneActive

from app.api.problems import install
from app.api.requests import router
from app.database import Database
from app.identifiers import id_text
from app.telemetry.recorder import Recorder

EVENTS = [finished(number, context=PLAIN_CONTEXT, profile_id="plain") for number in range(60)]
EVENTS += [finished(number) for number in range(60, 250)]
NEWEST_FIRST = [id_text(event.request_id) for event in EVENTS[::-1]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("export")
    database = Database(f"sqlite:///{folder / 'paceline.db'}")
    database.migrate()
    database.start()
    recorder = Recorder(database)
    for event in EVENTS:
        recorder.on_request_finished(event)
    done, _ = wait([database.submit(lambda _session: None)], timeout=10)
    assert done
    app = FastAPI()
    install(app)
    app.include_router(router(database, NoneActive()))
    yield TestClient(app)
    database.close()


def test_all_of_it_is_a_file_of_csv_where_nothing_else_is_said(client: TestClient) -> None:
    answer = client.get("/requests/export")
    assert answer.headers["content-type"].startswith("text/csv; charset=utf-8")
    assert answer.headers["content-disposition"] == 'attachment; filename="requests.csv"'
    assert [row["id"] for row in csv.DictReader(io.StringIO(answer.text))] == NEWEST_FIRST


def test_json_lines_are_the_same_objects_as_in_the_list(client: TestClient) -> None:
    lines = client.get("/requests/export?format=jsonl").text.splitlines()
    assert [json.loads(line) for line in lines] == client.get("/requests?limit=1000").json()["items"]


def test_parquet_is_read_by_its_own_reader(client: TestClient) -> None:
    answer = client.get("/requests/export?format=parquet")
    assert answer.headers["content-disposition"] == 'attachment; filename="requests.parquet"'
    assert pyarrow.parquet.read_table(io.BytesIO(answer.content)).column("id").to_pylist() == NEWEST_FIRST


@pytest.mark.parametrize("query", ["profile=plain", "until=2025-10-09T08:54:20Z", "method=none&category="])
def test_filters_are_those_of_the_list(client: TestClient, query: str) -> None:
    listed, exported = (client.get(f"/requests{path}{query}") for path in ("?limit=1000&", "/export?format=jsonl&"))
    if listed.status_code == 200:
        assert [json.loads(line) for line in exported.text.splitlines()] == listed.json()["items"]
        assert len(listed.json()["items"]) == 60
    else:
        assert (exported.status_code, exported.json()["code"]) == (listed.status_code, listed.json()["code"])


@pytest.mark.parametrize("query", ["format=xlsx", "format=csv&limit=5", "outcome=won", "since=yesterday"])
def test_what_cannot_be_exported_is_refused_before_the_first_byte(client: TestClient, query: str) -> None:
    answer = client.get(f"/requests/export?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
