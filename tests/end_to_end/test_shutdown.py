"""The service is asked to end while requests wait for profiles that are not ready."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fixtures.faulty_engine import FAKE_ENGINE, Faults, ended, reached
from fixtures.tiny_models import TinyModels
from service import (
    DEADLINE_SECONDS,
    ExplicitSettings,
    InFlight,
    completion,
    eventually,
    served_process,
    settings_for,
    short_folder,
    wait_for_end,
)

# The service has so long for what it serves. What only waits must not use it up.
DRAIN_SECONDS = 4 * DEADLINE_SECONDS


def _settings(folder: Path) -> ExplicitSettings:
    (folder / "models").mkdir()
    return settings_for(
        folder,
        folder / "models",
        engine=str(FAKE_ENGINE),
        runtime_dir=folder / "run",
        drain_seconds=DRAIN_SECONDS,
        restart_pause_seconds=DRAIN_SECONDS,
        terminate_seconds=0.5,
        kill_seconds=0.5,
    )


def _crash(faults: Faults, profile: str) -> None:
    instance = faults.service.start(profile)
    os.kill(instance["pid"], signal.SIGKILL)
    ended(faults.service, instance["id"])


@pytest.mark.parametrize("why", ["it-loads", "it-pauses-after-a-crash"])
def test_who_waits_is_told_and_the_service_ends_at_once(tiny: TinyModels, why: str) -> None:
    with short_folder() as folder, served_process(_settings(folder)) as served:
        service, faults = served.service, Faults(served.service, folder / "models", tiny)
        ready = service.start(faults.profile("ready", {}))
        loads = {"load_seconds": DRAIN_SECONDS} if why == "it-loads" else {}
        faults.profile(why, loads)
        if not loads:
            _crash(faults, why)
        waiting = [InFlight(service, completion(why, stream=stream)) for stream in (True, False)]
        if loads:
            reached(service, why, "loading")
        eventually(lambda: service.newest(why)["queued"] == 2 or None)
        pids = [ready["pid"], *filter(None, [service.newest(why)["pid"]])]
        with service.client.stream("GET", "/events") as events:
            served.process.send_signal(signal.SIGTERM)
            assert list(events.iter_lines())

        assert served.process.wait(DEADLINE_SECONDS) in (0, -signal.SIGTERM)
        assert all(wait_for_end(pid, 0) for pid in pids)
        for request in waiting:
            answer, _ = request.outcome()
            assert answer is not None
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert not [line for line in served.log if "Traceback" in line or "never" in line]


def test_who_waits_for_a_start_is_told_too(tiny: TinyModels) -> None:
    with short_folder() as folder, served_process(_settings(folder)) as served, ThreadPoolExecutor(1) as pool:
        service, faults = served.service, Faults(served.service, folder / "models", tiny)
        profile = faults.profile("endless", {"load_seconds": DRAIN_SECONDS})
        starting = pool.submit(service.client.post, f"/profiles/{profile}/start", params={"wait": True})
        reached(service, profile, "loading")
        served.process.send_signal(signal.SIGTERM)
        answer = starting.result(DEADLINE_SECONDS)
        assert (answer.status_code, answer.json()["reason"]) == (502, "stopped")
        assert served.process.wait(DEADLINE_SECONDS) in (0, -signal.SIGTERM)
    assert not [line for line in served.log if "Traceback" in line]
