"""Old rows meet a service that starts: they go, and what they add up to stays."""

import asyncio
from pathlib import Path

import pytest
from fakes.finished_requests import DRAFTED, finished
from service import eventually, running_service, settings_for

from app.database import Database
from app.telemetry.recorder import Recorder

ROWS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a service with requests of 2025, one a minute."""
    database = Database(f"sqlite:///{tmp_path / 'data' / 'paceline.db'}")
    database.migrate()
    database.start()
    recorder = Recorder(database)
    for number in range(ROWS):
        recorder.on_request_finished(finished(number * 60, category="code"))
    asyncio.run(recorder.flush())
    database.close()
    return tmp_path


def test_rows_go_by_age_and_answers_say_what_they_come_from(folder: Path) -> None:
    with running_service(settings_for(folder, folder)) as service:
        eventually(lambda: service.client.get("/requests").json()["items"] == [] or None)
        (item,) = service.client.get("/stats", params={"group_by": "profile,category"}).json()["items"]
        assert (item["profile"], item["category"], item["requests"]) == ("gemma", "code", ROWS)
        assert item["draft_tokens"] == ROWS * (DRAFTED.draft_tokens or 0)
        assert (item["acceptance_rate"], item["generation_tokens_per_second"]["overall"]) == (0.8, 40.0)
        assert item["percentiles_relative_error"] == 0.02
        assert item["generation_tokens_per_second"]["p50"] == pytest.approx(40, rel=0.02)
        assert item["time_per_output_token_seconds"]["p99"] == pytest.approx(0.025, rel=0.02)
        assert item["queue_seconds"]["p90"] == pytest.approx(0.0015, rel=0.02)
        assert service.client.get("/requests/export").text.count("\r\n") == 1


def test_without_a_limit_nothing_goes(folder: Path) -> None:
    with running_service(settings_for(folder, folder, retention_days=0, retention_bytes=0)) as service:
        (item,) = service.client.get("/stats").json()["items"]
        assert (item["requests"], item["percentiles_relative_error"]) == (ROWS, 0.0)
        assert len(service.client.get("/requests/export", params={"format": "jsonl"}).text.splitlines()) == ROWS
