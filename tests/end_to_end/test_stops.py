"""A person stops, restarts or changes a profile that is just about to come up."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from fixtures.faulty_engine import Faults, ended, reached, service_with_faults
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, InFlight, completion, eventually

# About six seconds for an answer.
TALKS_SLOWLY = {"chunk_interval_seconds": 0.2}


@pytest.fixture(scope="module")
def faults(tiny: TinyModels) -> Iterator[Faults]:
    with service_with_faults(tiny, restart_pause_seconds=3 * DEADLINE_SECONDS) as running:
        yield running


def crashed(faults: Faults, profile: str) -> dict[str, Any]:
    """A profile that has crashed and starts again later than any test waits."""
    faults.profile(profile, {})
    instance = faults.service.start(profile)
    os.kill(instance["pid"], signal.SIGKILL)
    ended(faults.service, instance["id"])
    return status(faults, profile)


def status(faults: Faults, profile: str) -> dict[str, Any]:
    found: dict[str, Any] = faults.service.client.get(f"/profiles/{profile}").json()["status"]
    return found


def draining(faults: Faults, profile: str) -> InFlight:
    """A request that is being answered while the profile has been asked to stop."""
    faults.profile(profile, TALKS_SLOWLY)
    faults.service.start(profile)
    request = InFlight(faults.service, completion(profile, stream=True))
    assert request.has_begun()
    faults.service.client.post(f"/profiles/{profile}/stop", params={"drain_seconds": DEADLINE_SECONDS})
    reached(faults.service, profile, "draining")
    return request


def waits(faults: Faults, profile: str) -> InFlight:
    """A request that waits for the profile."""
    request = InFlight(faults.service, completion(profile))
    assert eventually(lambda: faults.service.newest(profile)["queued"] or None) == 1
    return request


def refused_as_stopped(request: InFlight) -> None:
    answer, _ = request.outcome()
    assert answer is not None
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "profile_not_running")
    assert "was stopped" in answer.json()["error"]["message"]


def test_a_stop_in_the_pause_after_a_crash_ends_the_waiting_and_the_restart(faults: Faults) -> None:
    assert crashed(faults, "stopped-in-pause")["backoff_until"] is not None
    request = waits(faults, "stopped-in-pause")
    faults.service.stop("stopped-in-pause")
    refused_as_stopped(request)
    assert status(faults, "stopped-in-pause")["backoff_until"] is None
    assert len(faults.facts("stopped-in-pause", "started")) == 1
    # The next request is another matter.
    assert faults.service.complete("stopped-in-pause").status_code == 200


def test_a_start_by_hand_in_the_pause_is_one_for_all(faults: Faults) -> None:
    crashed(faults, "started-in-pause")
    request = waits(faults, "started-in-pause")
    faults.service.start("started-in-pause")
    answer, _ = request.outcome()
    assert answer is not None
    assert answer.status_code == 200
    assert len(faults.facts("started-in-pause", "started")) == 2


def test_a_changed_profile_does_not_wait_for_the_pause_of_the_old_one(faults: Faults) -> None:
    crashed(faults, "changed-in-pause")
    faults.service.client.patch("/profiles/changed-in-pause", json={"description": "another"})
    assert faults.service.complete("changed-in-pause").status_code == 200
    assert faults.service.newest("changed-in-pause")["revision"] == 2


def test_a_profile_in_its_pause_is_deleted_once_it_is_stopped(faults: Faults) -> None:
    crashed(faults, "deleted-in-pause")
    client = faults.service.client
    assert client.delete("/profiles/deleted-in-pause").status_code == 409
    assert client.post("/profiles/deleted-in-pause/stop").status_code == 200
    assert client.delete("/profiles/deleted-in-pause").status_code == 204
    assert faults.service.complete("deleted-in-pause").status_code == 404


def test_a_stop_ends_the_waiting_for_the_end_of_an_earlier_life(faults: Faults) -> None:
    answered = draining(faults, "stopped-twice")
    request = waits(faults, "stopped-twice")
    faults.service.stop("stopped-twice", drain_seconds=0)
    refused_as_stopped(request)
    assert faults.service.state("stopped-twice") == "stopped"
    assert len(faults.facts("stopped-twice", "started")) == 1
    answered.outcome()


def test_a_stop_withdraws_a_restart(faults: Faults) -> None:
    answered = draining(faults, "not-again")
    client = faults.service.client
    assert client.post("/profiles/not-again/restart", params={"drain_seconds": DEADLINE_SECONDS}).status_code == 202
    assert faults.service.stop("not-again", drain_seconds=0)["state"] == "stopped"
    # What runs, or is about to, cannot be deleted.
    eventually(lambda: client.delete("/profiles/not-again").status_code == 204 or None)
    assert len(faults.facts("not-again", "started")) == 1
    answered.outcome()


def test_a_restart_while_it_loads_keeps_those_who_wait(faults: Faults) -> None:
    profile = faults.profile("restarted", {"launches": [{"load_seconds": DEADLINE_SECONDS}, {}]})
    request = InFlight(faults.service, completion(profile))
    eventually(lambda: faults.facts(profile, "started") or None)
    again = faults.service.client.post(f"/profiles/{profile}/restart", params={"wait": True})
    assert again.status_code == 200
    answer, _ = request.outcome()
    assert answer is not None
    assert answer.status_code == 200
    assert faults.service.row(answer)["instance_id"] == again.json()["id"]


def test_a_stop_of_what_is_over_changes_nothing(faults: Faults) -> None:
    profile = faults.profile("over", {"fail_during_load": {"stderr": ["0.01 E no"], "exit_code": 1}})
    assert faults.service.client.post(f"/profiles/{profile}/start", params={"wait": True}).status_code == 502
    before = faults.service.newest(profile)
    for _ in range(2):
        assert faults.service.stop(profile)["state"] == "failed"
    assert faults.service.newest(profile) == before
