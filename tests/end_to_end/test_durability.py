"""The service is killed, or asked to end, in the middle of its work: nothing is left running and nothing is lost."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.tiny_models import TinyModels, write_dense
from service import (
    DEADLINE_SECONDS,
    InFlight,
    ServedProcess,
    completion,
    eventually,
    running_service,
    served_process,
    settings_for,
    short_folder,
    wait_for_end,
)

CONTEXT_TOKENS = 1 << 17
PROFILE = "durable"


@pytest.fixture
def folder(tiny: TinyModels) -> Iterator[Path]:
    with short_folder() as folder:
        models = folder / "models"
        models.mkdir()
        write_dense(models / "long.gguf", blocks=1, context_length=CONTEXT_TOKENS)
        yield folder


def _settings(folder: Path) -> Any:
    # Who is killed cannot clean up: the sockets lie in the test's own folder.
    return settings_for(folder, folder / "models", drain_seconds=0.0, runtime_dir=folder / "run")


def _work(served: ServedProcess) -> tuple[dict[str, Any], str, InFlight]:
    """One request that is done and one whose answer takes minutes: the instance, the done request's id, the other."""
    served.service.add(
        {"id": PROFILE, "target": {"path": "long.gguf"}, "context": {"threads": 1, "size": CONTEXT_TOKENS}}
    )
    instance = served.service.start(PROFILE)
    done = served.service.complete(PROFILE)
    assert done.status_code == 200
    served.service.row(done)
    request = InFlight(served.service, completion(PROFILE, max_tokens=100_000, stream=True))
    assert request.has_begun()
    return instance, done.headers["x-request-id"], request


def _database_is_whole(folder: Path) -> None:
    with sqlite3.connect(folder / "data" / "paceline.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert len(connection.execute("SELECT version_num FROM alembic_version").fetchall()) == 1
    connection.close()


@pytest.mark.slow
def test_a_kill_leaves_no_engine_and_a_whole_database(folder: Path) -> None:
    """Earns the promise that a crash of the service costs no memory of the machine and no recorded request."""
    with served_process(_settings(folder)) as served:
        instance, done_id, request = _work(served)
        os.kill(served.process.pid, signal.SIGKILL)
        assert served.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert wait_for_end(instance["pid"], 5), "the engine outlives the service"
        _, failure = request.outcome()
        assert failure is not None
    _database_is_whole(folder)

    with running_service(_settings(folder)) as service:
        earlier = service.instance(instance["id"])
        assert (earlier["state"], earlier["reason"], earlier["pid"]) == ("failed", "service-ended", None)
        row = service.row_of(done_id)
        assert (row["outcome"], row["instance_id"]) == ("completed", instance["id"])
        assert service.state(PROFILE) == "stopped"
        assert service.start(PROFILE)["id"] != instance["id"]
        assert service.complete(PROFILE).status_code == 200
        assert service.client.get(f"/instances/{instance['id']}/logs").json()["items"]
    _database_is_whole(folder)


@pytest.mark.slow
def test_a_kill_while_it_loads_leaves_no_engine(folder: Path) -> None:
    """Earns the same for the moments before the engine is known to serve."""
    with served_process(_settings(folder)) as served:
        served.service.add({"id": PROFILE, "target": {"path": "long.gguf"}, "context": {"threads": 1}})
        served.service.client.post(f"/profiles/{PROFILE}/start")
        pid = eventually(lambda: served.service.newest(PROFILE)["pid"])
        os.kill(served.process.pid, signal.SIGKILL)
        assert wait_for_end(pid, 5), "the engine outlives the service"


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP], ids=["term", "terminal-closed"])
def test_a_term_ends_in_order(folder: Path, ending: signal.Signals) -> None:
    """Earns that an upgrade by systemd loses no row, not even that of the request which it cut."""
    with served_process(_settings(folder)) as served:
        instance, done_id, request = _work(served)
        os.kill(served.process.pid, ending)
        assert served.process.wait(DEADLINE_SECONDS) in (0, -signal.SIGTERM)
        assert wait_for_end(instance["pid"], 0)
        request.outcome()
    _database_is_whole(folder)

    with running_service(_settings(folder)) as service:
        earlier = service.instance(instance["id"])
        assert (earlier["state"], earlier["reason"], earlier["exit_code"]) == ("stopped", "service-stopped", 0)
        assert earlier["stopped_at"]
        rows = service.client.get("/requests").json()["items"]
        assert [row["outcome"] for row in rows if row["id"] == done_id] == ["completed"]
        (cut,) = [row for row in rows if row["id"] != done_id]
        assert cut["outcome"] in ("cancelled", "upstream_failed")
        assert (cut["stream"], cut["status_code"]) == (True, 200)
        assert cut["duration_seconds"] > 0
