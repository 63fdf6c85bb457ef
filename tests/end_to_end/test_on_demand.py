"""Profiles that come up when they are asked for, and go when they are not."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fixtures.faulty_engine import Faults, ended, faults_in, reached, service_with_faults
from fixtures.tiny_models import TinyModels
from service import InFlight, completion, events, eventually, short_folder, wait_for_end

OUT_OF_MEMORY = ["0.01.000.000 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB: out of memory"]


def test_one_load_is_shared_by_all_who_wait(faults: Faults) -> None:
    profile = faults.profile("shared-load", {"load_seconds": 0.5})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: faults.service.complete(profile), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len(faults.facts(profile, "started")) == 1
    rows = [faults.service.row(answer) for answer in answers]
    assert len({row["instance_id"] for row in rows}) == 1
    assert all(row["queue_seconds"] >= 0.4 for row in rows)


def test_who_waits_is_shown(faults: Faults) -> None:
    profile = faults.profile("shown-queue", {"load_seconds": 0.6})
    requests = [InFlight(faults.service, completion(profile)) for _ in range(3)]
    eventually(lambda: True if faults.service.state(profile) == "loading" else None)
    assert eventually(lambda: faults.service.newest(profile)["queued"] == 3 or None)
    for request in requests:
        request.outcome()
    assert faults.service.newest(profile)["queued"] == 0


@pytest.mark.parametrize(("limit", "waiting"), [(0, 0), (1, 1)])
def test_over_the_bound_of_the_queue_it_is_429_before_the_first_byte(faults: Faults, limit: int, waiting: int) -> None:
    profile = faults.profile(f"bounded-{limit}", {"load_seconds": 0.6}, serving={"queue_limit": limit})
    queued = [InFlight(faults.service, completion(profile)) for _ in range(waiting)]
    if waiting:
        reached(faults.service, profile, "loading")
    for stream in (False, True):
        refused = faults.service.complete(profile, stream=stream)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) > 0
        row = faults.service.row(refused)
        assert (row["outcome"], row["status_code"], row["profile_id"]) == ("rejected", 429, profile)
    for request in queued:
        answer, _ = request.outcome()
        assert answer is not None
        assert answer.status_code == 200


def test_no_more_requests_are_served_at_once_than_the_profile_says(faults: Faults) -> None:
    serving = {"max_concurrency": 2, "queue_limit": 3}
    profile = faults.profile("two-at-once", {"chunk_interval_seconds": 0.02}, serving=serving)
    faults.service.start(profile)
    requests = [InFlight(faults.service, completion(profile, stream=True)) for _ in range(5)]
    assert eventually(lambda: faults.service.newest(profile)["queued"] == 3 or None)
    assert faults.service.newest(profile)["leases"] == 2
    # Who only looks needs no turn.
    assert faults.service.client.get(f"/upstream/{profile}/health").status_code == 200
    refused = faults.service.complete(profile)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    for request in requests:
        answer, failure = request.outcome()
        assert failure is None
        assert answer is not None
        assert request.payloads[-1] == "[DONE]"
    faults.service.stop(profile)


def test_who_waits_too_long_is_told_so_and_the_load_goes_on(faults: Faults) -> None:
    profile = faults.profile("too-slow", {"load_seconds": 4.0}, serving={"queue_timeout_seconds": 2})
    refused = faults.service.complete(profile)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_timed_out")
    reached(faults.service, profile, "ready")
    assert faults.service.complete(profile).status_code == 200
    assert len(faults.facts(profile, "started")) == 1


def test_a_refused_placement_is_503_with_the_finding(faults: Faults) -> None:
    faults.service.add({"id": "refused", "target": {"path": "not-there.gguf"}})
    refused = faults.service.complete("refused")
    assert refused.status_code == 503
    assert "target-unreadable" in refused.json()["error"]["message"]
    assert "not-there.gguf" in refused.json()["error"]["message"]
    assert faults.service.row(refused)["outcome"] == "rejected"


def test_a_failed_load_is_502_with_its_last_lines_and_is_not_tried_again_for_the_next(faults: Faults) -> None:
    profile = faults.profile("fails-to-load", {"fail_during_load": {"stderr": OUT_OF_MEMORY, "exit_code": 1}})
    for _ in range(2):
        failed = faults.service.complete(profile)
        assert failed.status_code == 502
        assert failed.json()["error"]["code"] == "instance_failed"
        assert "out-of-memory" in failed.json()["error"]["message"]
        assert OUT_OF_MEMORY[0] in failed.json()["error"]["message"]
    assert len(faults.facts(profile, "started")) == 1
    status = faults.service.client.get(f"/profiles/{profile}").json()["status"]
    assert status["backoff_until"] is not None
    assert status["last_failure"].startswith("out-of-memory")
    # A person may start it at any time, and a changed profile is another matter.
    assert faults.service.client.post(f"/profiles/{profile}/start", params={"wait": True}).status_code == 502
    assert len(faults.facts(profile, "started")) == 2
    faults.service.client.patch(f"/profiles/{profile}", json={"description": "changed"})
    assert faults.service.complete(profile).status_code == 502
    assert len(faults.facts(profile, "started")) == 3


def test_a_stop_while_it_loads_answers_those_who_wait(faults: Faults) -> None:
    profile = faults.profile("stopped-while-loading", {"load_seconds": 5})
    request = InFlight(faults.service, completion(profile))
    reached(faults.service, profile, "loading")
    faults.service.stop(profile)
    answer, _ = request.outcome()
    assert answer is not None
    assert answer.status_code == 503


def test_looking_starts_nothing(faults: Faults) -> None:
    profile = faults.profile("looked-at", {})
    client = faults.service.client
    for path in ("/v1/models", "/health", "/ready", "/metrics", f"/profiles/{profile}", "/instances", "/devices"):
        assert client.get(path).status_code == 200, path
    assert client.post(f"/profiles/{profile}/check").status_code == 200
    for path in ("health", "v1/health", "metrics", "slots?model=x", "v1/models", "models"):
        assert client.get(f"/upstream/{profile}/{path}").status_code == 503, path
        assert client.head(f"/upstream/{profile}/{path}").status_code == 503, path
    assert client.get("/slots", params={"model": profile}).status_code == 503
    assert faults.service.state(profile) == "stopped"
    assert faults.facts(profile, "started") == []


def test_an_idle_instance_ends_and_a_request_brings_it_back(faults: Faults) -> None:
    profile = faults.profile("idles", {}, serving={"idle_timeout_seconds": 0.5})
    first = faults.service.start(profile)
    idle = ended(faults.service, first["id"])
    assert (idle["state"], idle["reason"], idle["exit_code"]) == ("stopped", "idle-timeout", 0)
    assert wait_for_end(first["pid"], 0)
    answer = faults.service.complete(profile)
    assert answer.status_code == 200
    assert faults.service.row(answer)["instance_id"] != first["id"]


def test_requests_keep_it_from_idling_and_pinning_does(faults: Faults) -> None:
    busy = faults.profile("busy", {"chunk_interval_seconds": 0.03}, serving={"idle_timeout_seconds": 0.4})
    pinned = faults.profile("pinned", {}, serving={"idle_timeout_seconds": 0.2, "pinned": True})
    faults.service.start(pinned)
    instance = faults.service.start(busy)
    _, payloads = faults.service.stream(busy)  # 32 tokens: about a second
    assert payloads[-1] == "[DONE]"
    assert faults.service.instance(instance["id"])["state"] == "ready"
    assert ended(faults.service, instance["id"])["reason"] == "idle-timeout"
    assert faults.service.state(pinned) == "ready"
    faults.service.stop(pinned)


def test_how_long_it_may_idle_can_be_changed_while_it_serves(faults: Faults) -> None:
    profile = faults.profile("changed-while-ready", {}, serving={"idle_timeout_seconds": 1})
    client = faults.service.client
    instance = faults.service.start(profile)
    assert client.patch(f"/profiles/{profile}", json={"serving": {"pinned": True}}).status_code == 200
    idles = faults.service.start(faults.profile("beside-it", {}, serving={"idle_timeout_seconds": 1.5}))
    assert ended(faults.service, idles["id"])["reason"] == "idle-timeout"
    assert faults.service.instance(instance["id"])["state"] == "ready"
    assert client.patch(f"/profiles/{profile}", json={"serving": {"pinned": False}}).status_code == 200
    assert ended(faults.service, instance["id"])["reason"] == "idle-timeout"


def test_a_crash_while_it_serves_is_followed_by_a_new_life(tiny: TinyModels) -> None:
    with service_with_faults(tiny, restart_pause_seconds=0.05, restart_most=2) as faults:
        service = faults.service
        profile = faults.profile("crashes", {})
        other = service.start(faults.profile("neighbour", {}))
        lives = [service.start(profile)]
        for _ in range(2):
            began = time.monotonic()
            os.kill(lives[-1]["pid"], signal.SIGKILL)
            failed = ended(service, lives[-1]["id"])
            assert time.monotonic() - began < 1.0
            assert (failed["state"], failed["reason"]) == ("failed", "killed-by-signal-9")
            reached(service, profile, "ready")
            lives.append(service.newest(profile))
        assert len({life["id"] for life in lives}) == 3

        os.kill(lives[-1]["pid"], signal.SIGKILL)
        ended(service, lives[-1]["id"])
        answer = service.complete(profile)
        assert answer.status_code == 502
        assert "3 times in a row" in answer.json()["error"]["message"]
        status = service.client.get(f"/profiles/{profile}").json()["status"]
        assert "Given up: it crashed 3 times in a row" in status["last_failure"]
        assert len(faults.facts(profile, "started")) == 3
        # Nobody else was disturbed, and a person begins anew.
        assert service.instance(other["id"])["state"] == "ready"
        service.start(profile)
        assert service.complete(profile).status_code == 200


def test_a_server_that_is_healthy_and_answers_nothing_is_ended_and_replaced(tiny: TinyModels) -> None:
    settings = {"canary_silence_seconds": 0.4, "canary_probe_seconds": 0.4, "restart_pause_seconds": 0.05}
    with service_with_faults(tiny, **settings) as faults:
        service = faults.service
        profile = faults.profile("hangs", {"launches": [{"hang_after_completions": 1}, {}]})
        first = service.start(profile)
        assert service.complete(profile).status_code == 200
        hung = InFlight(service, completion(profile))
        failed = ended(service, first["id"])
        assert (failed["state"], failed["reason"]) == ("failed", "unresponsive")
        answer, _ = hung.outcome()
        assert answer is not None
        assert answer.status_code == 502
        assert service.complete(profile).status_code == 200
        assert service.newest(profile)["id"] != first["id"]


def test_a_load_that_comes_on_no_more_is_ended(tiny: TinyModels) -> None:
    with service_with_faults(tiny, load_stall_seconds=1.5) as faults:
        stalled = faults.profile("stalls", {"load_seconds": 1, "load_grows_bytes": 1 << 26, "stall_at": 0.3})
        answer = faults.service.client.post(f"/profiles/{stalled}/start", params={"wait": True})
        assert answer.status_code == 502
        assert answer.json()["reason"] == "load-stalled"
        # One that is slow, and silent, but takes memory all the time, is not.
        slow = faults.profile("slow-and-steady", {"load_seconds": 3, "load_grows_bytes": 1 << 28})
        instance = faults.service.start(slow)
        assert instance["load_progress"]["stage"]


def test_a_stream_that_waits_is_kept_alive_and_told_of_the_failure(tiny: TinyModels) -> None:
    with service_with_faults(tiny, sign_of_life_seconds=0.1) as faults:
        good = faults.profile("slow-good", {"load_seconds": 0.6})
        with faults.service.client.stream("POST", "/v1/completions", json=completion(good, stream=True)) as answer:
            assert answer.status_code == 200
            lines = [line for line in answer.iter_lines() if line]
        assert lines[0] == ": waiting"
        assert lines[-1] == "data: [DONE]"

        failing = {"stderr": OUT_OF_MEMORY, "exit_code": 1}
        bad = faults.profile("slow-bad", {"load_seconds": 0.6, "fail_during_load": failing})
        with faults.service.client.stream("POST", "/v1/completions", json=completion(bad, stream=True)) as answer:
            assert answer.status_code == 200
            lines = [line for line in answer.iter_lines() if line]
        assert lines[0] == ": waiting"
        error = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert error["code"] == "instance_failed"
        assert "out-of-memory" in error["message"]
        row = faults.service.row(answer)
        assert (row["outcome"], row["status_code"]) == ("rejected", 502)


def test_autostart_comes_up_by_priority_and_what_is_refused_is_told_and_left(tiny: TinyModels) -> None:
    with short_folder() as folder:
        with faults_in(folder, tiny) as faults:
            for profile, priority in (("late", 0), ("first", 10), ("second", 5)):
                faults.profile(profile, {}, serving={"autostart": True, "priority": priority})
            faults.service.add({"id": "broken", "target": {"path": "gone.gguf"}, "serving": {"autostart": True}})
        with faults_in(folder, tiny) as faults:
            service = faults.service
            for profile in ("first", "second", "late"):
                reached(service, profile, "ready")
            instances = service.client.get("/instances").json()["items"]
            order = [each["profile_id"] for each in sorted(instances, key=lambda each: str(each["created_at"]))]
            assert order == ["first", "second", "late"]
            # Told before anybody listened, and still kept.
            query: dict[str, Any] = {"types": "finding", "after": 1}
            with service.client.stream("GET", "/events", params=query) as stream:
                told = next(json.loads(each) for each in events(stream) if "finding" in each)
            assert (told["profile_id"], told["source"]) == ("broken", "autostart")
            assert told["finding"]["rule"] == "target-unreadable"
            assert service.state("broken") == "stopped"


def test_speculation_that_does_not_run_is_given_up_where_the_profile_says_so(tiny: TinyModels) -> None:
    draft = {"method": "draft", "draft": {"path": "draft.gguf"}}
    with service_with_faults(tiny) as faults:
        service = faults.service
        profile = faults.profile(
            "falls-back",
            {"when": [{"arguments": ["--spec-type", "draft-simple"], "then": {"speculative": False}}]},
            speculation=draft,
            serving={"on_degraded": "baseline"},
        )
        first = service.start(profile)
        assert first["degradations"] == ["speculation-inactive"]
        ended(service, first["id"])
        assert service.instance(first["id"])["reason"] == "fallback"
        reached(service, profile, "ready")
        second = service.newest(profile)
        assert second["degradations"] == ["speculation-given-up"]
        assert second["speculation"] == {"asked": True, "active": False, "method": "none", "draft_tokens_max": 0}
        found = service.client.get(f"/instances/{second['id']}/diagnosis").json()["items"]
        assert [finding["rule"] for finding in found] == ["speculation-given-up"]
        assert service.complete(profile).status_code == 200

        # It does not flap: what comes back after a crash runs without, too; a person tries it again.
        os.kill(second["pid"], signal.SIGKILL)
        ended(service, second["id"])
        reached(service, profile, "ready")
        assert service.newest(profile)["degradations"] == ["speculation-given-up"]
        service.stop(profile)
        assert service.start(profile)["degradations"] == ["speculation-inactive"]
