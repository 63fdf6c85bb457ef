"""How instances end: by themselves, because they are asked to, and while requests run."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from fixtures.faulty_engine import Faults, ended, reached, start
from fixtures.tiny_models import TinyModels
from service import InFlight, completion, running_service, settings_for, short_folder, wait_for_end


def test_an_abort_while_it_serves(faults: Faults) -> None:
    profile = faults.profile("abort-later", {})
    instance = faults.service.start(profile)
    os.kill(instance["pid"], signal.SIGABRT)
    failed = ended(faults.service, instance["id"])
    assert (failed["state"], failed["reason"], failed["exit_code"]) == ("failed", "killed-by-signal-6", -6)
    # An instance lives once: what is started then is another one.
    assert faults.service.start(profile)["id"] != instance["id"]
    assert faults.service.complete(profile).status_code == 200
    faults.service.stop(profile)


def test_a_server_that_ignores_term_is_killed(faults: Faults) -> None:
    profile = faults.profile("stubborn", {"ignore_sigterm": True})
    faults.service.start(profile)
    began = time.monotonic()
    stopped = faults.service.stop(profile)
    assert 1.0 <= time.monotonic() - began < 3.0
    assert (stopped["state"], stopped["exit_code"], stopped["reason"]) == ("stopped", -9, None)
    assert len(faults.facts(profile, "sigterm")) == 2


def test_connections_are_closed_before_term(faults: Faults) -> None:
    profile = faults.profile("closing", {"sigterm_needs_connections_closed": True, "chunk_interval_seconds": 0.02})
    faults.service.start(profile)
    request = InFlight(faults.service, completion(profile, max_tokens=1000, stream=True))
    assert request.has_begun()
    stopped = faults.service.stop(profile, drain_seconds=0)
    assert (stopped["state"], stopped["exit_code"]) == ("stopped", 0)
    assert len(faults.facts(profile, "sigterm")) == 1
    answer, failure = request.outcome()
    assert answer is not None
    assert failure is None
    assert "the instance was stopped" in request.payloads[-1]
    assert faults.service.row(answer)["outcome"] == "upstream_failed"


def test_a_start_while_it_drains_waits_and_starts_anew(faults: Faults) -> None:
    profile = faults.profile("draining", {"chunk_interval_seconds": 0.02})
    first = faults.service.start(profile)
    request = InFlight(faults.service, completion(profile, stream=True))
    assert request.has_begun()
    asked = faults.service.client.post(f"/profiles/{profile}/stop", params={"drain_seconds": 20})
    assert (asked.status_code, asked.json()["id"]) == (202, first["id"])
    reached(faults.service, profile, "draining")
    late = InFlight(faults.service, completion(profile, stream=True))

    second = faults.service.start(profile)
    assert second["id"] != first["id"]
    assert faults.service.instance(first["id"])["state"] == "stopped"
    _, failure = request.outcome()
    assert failure is None
    assert request.payloads[-1] == "[DONE]"
    # A request that came during the drain has waited for the new life.
    answer, failure = late.outcome()
    assert failure is None
    assert answer is not None
    assert faults.service.row(answer)["instance_id"] == second["id"]
    faults.service.stop(profile)


def test_a_drain_has_its_deadline(faults: Faults) -> None:
    profile = faults.profile("drain-deadline", {"chunk_interval_seconds": 0.02})
    faults.service.start(profile)
    request = InFlight(faults.service, completion(profile, max_tokens=1000, stream=True))
    assert request.has_begun()
    began = time.monotonic()
    stopped = faults.service.stop(profile, drain_seconds=0.3)
    assert 0.3 <= time.monotonic() - began < 3
    assert (stopped["state"], stopped["exit_code"], stopped["leases"]) == ("stopped", 0, 0)
    request.outcome()
    assert "the instance was stopped" in request.payloads[-1]


def test_a_second_stop_ends_the_drain(faults: Faults) -> None:
    profile = faults.profile("drain-cut-short", {"chunk_interval_seconds": 0.02})
    instance = faults.service.start(profile)
    request = InFlight(faults.service, completion(profile, max_tokens=1000, stream=True))
    assert request.has_begun()
    faults.service.client.post(f"/profiles/{profile}/stop", params={"drain_seconds": 600})
    reached(faults.service, profile, "draining")
    assert faults.service.stop(profile, drain_seconds=0)["id"] == instance["id"]
    assert faults.service.state(profile) == "stopped"
    request.outcome()


def test_two_starts_at_once_give_one_instance(faults: Faults) -> None:
    profile = faults.profile("twice", {"load_seconds": 0.2})
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: start(faults.service, profile), range(2)))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(faults.facts(profile, "started")) == 1
    faults.service.stop(profile)


def test_a_restart_is_a_new_instance(faults: Faults) -> None:
    profile = faults.profile("again", {})
    first = faults.service.start(profile)
    answer = faults.service.client.post(f"/profiles/{profile}/restart", params={"wait": True})
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert answer.json()["id"] != first["id"]
    assert wait_for_end(first["pid"], 0)
    lives = faults.service.client.get("/instances", params={"profile": profile}).json()["items"]
    assert [life["state"] for life in lives] == ["ready", "stopped"]
    faults.service.stop(profile)


def test_the_end_of_the_service_stops_every_instance(tiny: TinyModels) -> None:
    with short_folder() as folder:
        settings = settings_for(folder, tiny.dense_target.parent)
        with running_service(settings) as service:
            for profile in ("one", "two"):
                service.add({"id": profile, "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
            pids = [service.start(profile)["pid"] for profile in ("one", "two")]
        assert all(wait_for_end(pid, 0) for pid in pids)
        with running_service(settings) as service:
            lives = service.client.get("/instances").json()["items"]
            assert [(life["state"], life["exit_code"], life["reason"]) for life in lives] == [
                ("stopped", 0, "service-stopped")
            ] * 2
