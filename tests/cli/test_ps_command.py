import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli.paceline_command import paceline
from cli.running_command import running
from cli.small_service import SmallService
from fakes.finished_requests import finished
from fixtures.lives import CREATED, INSTANCE_ID, life
from rich.console import Console

from app.api.resources import InstanceResource
from app.cli.exit_codes import Exit
from app.cli.instances_table import duration_text, instances_table
from app.identifiers import id_text
from app.instances.state import InstanceState

FAILED = life(profile_id="phi", id=INSTANCE_ID + 1, state=InstanceState.FAILED, reason="out-of-memory", leases=0)
STOPPED = life(profile_id="idle", id=INSTANCE_ID + 2, state=InstanceState.STOPPED)


def service_of(*lives: object) -> SmallService:
    known = {record.profile_id: record for record in lives}  # type: ignore[attr-defined]
    return SmallService(profiles=[*known, "never"], lives=known)


def test_what_runs_or_failed_is_shown_with_its_requests_and_memory(tmp_path: Path) -> None:
    with service_of(life(leases=2, queued=5), FAILED, STOPPED).running() as server:
        settings = {"PACELINE_URL": server.base_url}
        shown = paceline("ps", cwd=tmp_path, settings=settings)
        assert shown.code == Exit.DONE
        gemma, phi = (line.split() for line in shown.out.splitlines()[1:])
        assert gemma[:6] == ["gemma", "ready", id_text(INSTANCE_ID), "draft", "yes", "2/5"]
        assert " ".join(gemma[6:]).startswith("CUDA0 4.0 GiB/- - ")
        assert phi[:3] == ["phi", "failed:", "out-of-memory"]
        everything = paceline("ps", "-a", "--json", cwd=tmp_path, settings=settings)
        assert [item["profile_id"] for item in json.loads(everything.out)["items"]] == ["gemma", "idle", "phi"]
        assert json.loads(everything.out)["items"][1] == InstanceResource.of(STOPPED).model_dump(mode="json")


def test_nothing_that_runs_is_said(tmp_path: Path) -> None:
    with service_of(STOPPED).running() as server:
        shown = paceline("ps", cwd=tmp_path, settings={"PACELINE_URL": server.base_url})
    assert shown.out == "nothing runs: `paceline start PROFILE` starts one\n"


def test_changes_are_shown_as_they_are_told_and_asked_for_nothing_else(tmp_path: Path) -> None:
    service = service_of(life(state=InstanceState.LOADING, ready_at=None))
    with service.running() as server:
        settings = {"PACELINE_URL": server.base_url}
        with running("ps", "--watch", "--json", cwd=tmp_path, settings=settings) as watch:
            (loading,) = json.loads(watch.line())["items"]
            assert loading["state"] == "loading"
            server.call(lambda: service.progress(0.5))
            assert json.loads(watch.line())["items"][0]["load_progress"]["fraction"] == 0.5
            server.call(lambda: service.enter(InstanceState.READY, ready_at=CREATED))
            assert json.loads(watch.line())["items"][0]["state"] == "ready"
            # Leases have no event of their own: a request that ends tells that they are others.
            server.call(lambda: service.lives.update(gemma=life(leases=1)))
            server.call(lambda: service.bus.publish(finished()))
            assert json.loads(watch.line())["items"][0]["leases"] == 1
            server.call(lambda: service.enter(InstanceState.STOPPED))
            assert json.loads(watch.line())["items"] == []
            assert watch.interrupt() == Exit.DONE
            assert watch.said_of_itself() == ""
    assert service.looks == 1


def test_a_service_that_restarts_is_looked_at_anew(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with service_of(life()).running() as server:
            settings = {"PACELINE_URL": server.base_url}
            watch = stack.enter_context(running("ps", "-w", "-a", cwd=tmp_path, settings=settings))
            assert " ready " in watch.line_with("gemma")
        with service_of(FAILED).running(port=server.port):
            assert " failed: out-of-memory " in watch.line_with("phi")


@pytest.mark.parametrize(
    ("speculation", "said"),
    [((False, None), "-"), ((True, None), "?"), ((True, True), "yes"), ((True, False), "no")],
)
def test_whether_it_speculates_is_told_from_whether_it_was_asked_to(
    speculation: tuple[bool, bool | None], said: str
) -> None:
    asked, active = speculation
    record = life(speculation={"asked": asked, "active": active, "method": "draft", "draft_tokens_max": 3})
    assert cells(record)[4] == said


def test_memory_is_summed_by_device_beside_what_was_measured() -> None:
    memory = {
        "predicted": {
            "CUDA0": {"weights": 3 << 30, "kv_cache": 1 << 30}, "CUDA1": {"weights": 0}, "host": {"x": 1 << 20},
        },
        "measured": {"CUDA0": {"weights": 2 << 30}, "CUDA2": {"compute": 1 << 30}},
    }  # fmt: skip
    assert cells(life(memory=memory), column=6) == ["CUDA0 4.0 GiB/2.0 GiB", "host 1 MiB/-", "CUDA2 -/1.0 GiB"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (200_000, "2 d")]
)
def test_spans_are_said_in_their_largest_unit(seconds: float, said: str) -> None:
    assert duration_text(seconds) == said


def test_since_counts_from_what_it_is_now() -> None:
    ready = life(created_at=CREATED - timedelta(hours=1))
    assert cells(ready)[-1] == "5 min"
    assert cells(life(created_at=CREATED - timedelta(hours=1), ready_at=None))[-1] == "1 h"


def cells(record: object, column: int | None = None) -> list[str]:
    """The cells of the one row, or all lines of one of its cells."""
    instance = InstanceResource.of(record).model_dump(mode="json")  # type: ignore[arg-type]
    table = instances_table([instance], datetime(2026, 1, 31, 12, 5, tzinfo=UTC))
    console = Console(width=400)
    found = [str(next(iter(cell.cells)) if column is None else "") for cell in table.columns]
    if column is not None:
        return str(next(iter(table.columns[column].cells))).splitlines()
    assert console.measure(table).minimum > 0
    return found
