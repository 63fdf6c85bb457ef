"""The real service as a process of its own, with one profile that runs on the echo engine.

`paceline serve` with a data folder of its own: the gate, the relay, the recorder on SQLite and the metrics are all in.
"""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.echo_engine import write_program
from bench.processes import ended, free_ports, wait_for_port
from bench.tiny_target import write_tiny_target

_REPOSITORY = Path(__file__).resolve().parent.parent
_DEADLINE_SECONDS = 20.0
_COUNTED, _UNRECORDED = "paceline_requests_total", "paceline_requests_unrecorded_total"
PROFILE = "bench"


class RowsMissing(Exception):
    """The service did not record every request that it was sent: its figures are those of something else."""


@dataclass(frozen=True)
class Service:
    """A running service; `database` is its file."""

    port: int
    pid: int
    database: Path
    client: httpx.Client

    def wait_for_rows(self, sent: int) -> None:
        """Until so many requests are committed: the writer's work belongs to them. RowsMissing after a while.

        Counted in the file, since asking the service would cost it CPU time.
        """
        deadline = time.monotonic() + _DEADLINE_SECONDS
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            while (rows := connection.execute("SELECT count(*) FROM request").fetchone()[0]) != sent:
                if time.monotonic() > deadline:
                    raise RowsMissing(f"{sent} requests were sent, {rows} rows are in the database")
                time.sleep(0.02)

    def demand_complete(self, sent: int) -> None:
        """RowsMissing unless the service says that it recorded and counted every request, and lost none."""
        groups = self._get("/stats").json()["items"]
        seen = {
            "recorded": sum(group["requests"] for group in groups),
            "completed": sum(group["outcomes"].get("completed", 0) for group in groups),
        }
        for family in text_string_to_metric_families(self._get("/metrics").text):
            for sample in family.samples:
                if sample.name in (_COUNTED, _UNRECORDED):
                    seen[sample.name] = seen.get(sample.name, 0) + int(sample.value)
        wanted = {"recorded": sent, "completed": sent, _COUNTED: sent, _UNRECORDED: 0}
        if seen != wanted:
            raise RowsMissing(f"the service says {seen}, expected {wanted}")

    def start_another(self, profile_id: str) -> None:
        """One more instance on an echo engine of its own. RuntimeError where it does not come up."""
        _start(self.client, profile_id)

    def _get(self, path: str) -> httpx.Response:
        return self.client.get(path).raise_for_status()


@contextmanager
def running_service(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Service]:
    """`paceline serve` with all its files in `folder`, `more` settings, and the profile `bench` ready."""
    (port,) = free_ports(1)
    engine = folder / "llama-server"
    write_program(engine)
    models = folder / "models"
    models.mkdir()
    write_tiny_target(models / "target.gguf")
    settings = {
        "PORT": str(port),
        "DATA_DIR": str(folder / "data"),
        "MODEL_DIRS": str(models),
        "ENGINE": str(engine),
        "DRAIN_SECONDS": "1",
        "LOG_LEVEL": "warning",
        **(more or {}),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    environment.update({f"PACELINE_{name}": value for name, value in settings.items()}, PYTHONPATH=str(_REPOSITORY))
    with ExitStack() as stack:
        # In the folder, so that it finds nobody's .env.
        process = stack.enter_context(
            ended(subprocess.Popen([sys.executable, "-m", "app.cli", "serve"], cwd=folder, env=environment))
        )
        wait_for_port(port, process)
        client = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_DEADLINE_SECONDS, trust_env=False)
        )
        _start(client, PROFILE)
        yield Service(port, process.pid, folder / "data" / "paceline.db", client)


def _start(client: httpx.Client, profile_id: str) -> None:
    _ask(client, "/profiles", {"id": profile_id, "target": {"path": "target.gguf"}})
    instance = _ask(client, f"/profiles/{profile_id}/start?wait=true&timeout_seconds=15")
    if instance["state"] != "ready" or instance["degradations"]:
        raise RuntimeError(f"the echo engine is not taken for an engine: {instance}")


def _ask(client: httpx.Client, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = client.post(path, json=document)
    if answer.is_error:
        raise RuntimeError(f"POST {path} answered {answer.status_code}: {answer.text}")
    resource: dict[str, Any] = answer.json()
    return resource
