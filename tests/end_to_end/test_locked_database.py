"""Another program holds the database: requests are served all the same, and recorded later."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, eventually, running_service, served_process, settings_for, short_folder


@pytest.mark.slow
def test_requests_go_on_and_their_rows_outlive_even_a_kill(tiny: TinyModels) -> None:
    """Earns that a backup program, or a disk that stands still, costs no request and no row, also over a crash."""
    profile = {"id": "held", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}}
    with short_folder() as folder:
        settings = settings_for(folder, tiny.dense_target.parent, runtime_dir=folder / "run")
        with served_process(settings) as served, closing(_connect(folder)) as other:
            service = served.service
            service.add(profile)
            service.start("held")
            other.execute("BEGIN IMMEDIATE")
            answers = [service.complete("held") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200] * 3
            eventually(lambda: service.metric("paceline_telemetry_spilled_rows") == 3 or None)
            os.kill(served.process.pid, signal.SIGKILL)
            assert served.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        with running_service(settings) as service:
            for answer in answers:
                assert service.row(answer)["outcome"] == "completed"
            eventually(lambda: service.metric("paceline_telemetry_spilled_rows") == 0 or None)
            assert service.metric("paceline_telemetry_replayed_rows_total") == 3
            assert service.metric("paceline_requests_unrecorded_total") == 0
            assert service.client.get("/ready").json()["findings"] == []


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "data" / "paceline.db", isolation_level=None)
