"""Another program holds the database: requests are served all the same, and all that is told is recorded later."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.shapes import SHAPES
from fixtures.tiny_models import TinyModels
from service import (
    DEADLINE_SECONDS,
    ServedProcess,
    eventually,
    running_service,
    served_process,
    settings_for,
    short_folder,
)

# One request of 32 tokens: 28 tokens in 10 drafts.
DRAFTING = replace(
    next(shape for shape in SHAPES if shape.id == "draft-wrong"), patch={"speculation": {"draft_tokens_max": 3}}
)
DRAFTS = 10


@pytest.mark.slow
def test_requests_go_on_and_what_was_told_outlives_even_a_kill(tiny: TinyModels) -> None:
    """Earns that a backup program, or a disk that stands still, costs no request, row or life, also over a crash."""
    with short_folder() as folder:
        settings = settings_for(folder, tiny.dense_target.parent, runtime_dir=folder / "run")
        with served_process(settings) as served:
            service = served.service
            service.add({**DRAFTING.document(tiny), "id": "held"})
            instance = service.start("held")
            with _locked(folder):
                answers = [service.complete("held") for _ in range(3)]
                assert [answer.status_code for answer in answers] == [200] * 3
                assert service.stop("held")["state"] == "stopped"
                second = service.start("held")
                # The roster has the newest life of a profile only: this one comes from what is not written yet.
                assert service.instance(instance["id"])["state"] == "stopped"
                listed = service.client.get("/instances").json()["items"]
                assert [(each["id"], each["state"]) for each in listed] == [
                    (second["id"], "ready"),
                    (instance["id"], "stopped"),
                ]
                # Three requests and the window of their engine; and the lives, which are in no series.
                eventually(lambda: service.metric("paceline_telemetry_spilled_rows") == 4 or None)
                eventually(lambda: _left(folder).count(b'"state": "ready"') == 1 or None)
                os.kill(served.process.pid, signal.SIGKILL)
                assert served.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert _windows(folder) == []
        with running_service(settings) as service:
            for answer in answers:
                assert service.row(answer)["outcome"] == "completed"
            eventually(lambda: service.metric("paceline_telemetry_spilled_rows") == 0 or None)
            assert _windows(folder) == [(3 * DRAFTS,)]
            assert service.metric("paceline_telemetry_replayed_rows_total") == 4
            assert service.metric("paceline_requests_unrecorded_total") == 0
            assert service.client.get("/ready").json()["findings"] == []
            ended = [service.instance(each["id"]) for each in (instance, second)]
            assert [(each["state"], each["reason"]) for each in ended] == [
                ("stopped", None),
                ("failed", "service-ended"),
            ]


@pytest.mark.slow
def test_an_end_in_order_does_not_wait_for_the_other_program(tiny: TinyModels) -> None:
    """Earns that systemd ends the service, and no row, window or life is lost, whoever holds its database."""
    with short_folder() as folder:
        settings = settings_for(folder, tiny.dense_target.parent, runtime_dir=folder / "run")
        with served_process(settings) as served:
            served.service.add({**DRAFTING.document(tiny), "id": "held"})
            served.service.start("held")
            served.service.complete("held")
            usual_seconds = _seconds_to_end(served)
        with served_process(settings) as served:
            instance = served.service.start("held")
            with _locked(folder), ThreadPoolExecutor(1) as pool:
                asked = pool.submit(served.service.client.get, "/ready")
                answers = [served.service.complete("held") for _ in range(3)]
                eventually(lambda: served.service.metric("paceline_database_backlog") or None)
                assert not asked.done()  # it asks the database, too
                assert _seconds_to_end(served) < usual_seconds + 2
                assert asked.result(DEADLINE_SECONDS).status_code == 503
        assert not [line for line in served.log if "Traceback" in line]
        assert _windows(folder) == [(DRAFTS,)]
        with running_service(settings) as service:
            for answer in answers:
                assert service.row(answer)["outcome"] == "completed"
            eventually(lambda: service.metric("paceline_telemetry_spilled_rows") == 0 or None)
            assert _windows(folder) == [(DRAFTS,), (3 * DRAFTS,)]
            ended = service.instance(instance["id"])
            assert (ended["state"], ended["reason"], ended["exit_code"]) == ("stopped", "service-stopped", 0)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with closing(sqlite3.connect(folder / "data" / "paceline.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def _seconds_to_end(served: ServedProcess) -> float:
    began = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(DEADLINE_SECONDS) in (0, -signal.SIGTERM)
    return time.monotonic() - began


def _left(folder: Path) -> bytes:
    """The lives that wait in the file for the database."""
    return (folder / "data" / "instances.spill").read_bytes().partition(b"\0")[0]


def _windows(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "data" / "paceline.db")) as connection:
        return connection.execute("SELECT drafts FROM acceptance_window ORDER BY id").fetchall()
