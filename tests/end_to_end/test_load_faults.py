"""What goes wrong while an engine loads, and what it does not do as it was asked."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fixtures.faulty_engine import FAKE_ENGINE, Faults, reached, service_with_faults, start
from fixtures.tiny_models import TinyModels
from service import wait_for_end

DRAFT = {"speculation": {"method": "draft", "draft": {"path": "draft.gguf"}}}


def test_a_slow_load_is_shown_and_waited_for(faults: Faults) -> None:
    service = faults.service
    profile = faults.profile("slow-load", {"load_seconds": 0.6})
    begun = service.client.post(f"/profiles/{profile}/start")
    assert begun.status_code == 202
    assert begun.json()["state"] in ("starting", "loading")
    reached(service, profile, "loading")

    # A request waits for it, and its waiting is recorded.
    answered = service.complete(profile)
    assert answered.status_code == 200
    row = service.row(answered)
    assert (row["outcome"], row["instance_id"]) == ("completed", begun.json()["id"])
    assert row["queue_seconds"] > 0.1

    instance = service.start(profile)
    assert instance["id"] == begun.json()["id"]
    assert instance["load_seconds"] >= 0.6
    assert service.complete(profile).status_code == 200
    service.stop(profile)


CRASHES = {
    "out-of-memory": [
        "0.01.000.000 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB: out of memory"
    ],
    "flag-unknown": ["error: invalid argument: --no-such-flag"],
    "flag-value": ['error while handling argument "--threads": stoi'],
    "bad-model": ["0.01.000.000 E llama_model_load: error loading model: tensor 'x' is missing"],
    "address-in-use": ["0.00.010.000 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1"],
    "draft-failed": ["0.01.000.000 E srv load_model: failed to initialize speculative decoding context: no layers"],
    "exited": ["0.01.000.000 I srv nothing that is known"],
}


@pytest.mark.parametrize(("reason", "lines"), CRASHES.items(), ids=CRASHES)
def test_a_crash_while_loading_is_named(faults: Faults, reason: str, lines: list[str]) -> None:
    # What the engine says last of every failed load must not hide the cause.
    last = [] if reason in ("address-in-use", "exited") else ["0.01.000.001 E srv exiting due to model loading error"]
    scenario = {"fail_during_load": {"stderr": lines + last, "exit_code": 1}}
    _expect_failed_start(faults, faults.profile(f"crash-{reason}", scenario), reason, lines, exit_code=1)


def test_a_kill_while_loading_is_named(faults: Faults) -> None:
    profile = faults.profile("killed", {"fail_during_load": {"signal": "SIGKILL"}})
    _expect_failed_start(faults, profile, "killed-by-signal-9", [], exit_code=-9)


def _expect_failed_start(faults: Faults, profile: str, reason: str, lines: list[str], *, exit_code: int) -> None:
    service = faults.service
    answer = start(service, profile)
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["reason"]) == ("instance-failed", reason)
    assert set(lines) <= set(problem["last_lines"])
    instance = service.instance(problem["instance_id"])
    assert (instance["state"], instance["reason"], instance["exit_code"]) == ("failed", reason, exit_code)
    assert (instance["ready_at"], instance["pid"]) == (None, None)
    assert service.client.get(f"/profiles/{profile}").json()["status"]["last_failure"].startswith(f"{reason}: ")
    logged = service.client.get(f"/instances/{instance['id']}/logs").json()["items"]
    assert set(lines) <= set(logged)


def test_a_load_that_takes_too_long_is_ended(tiny: TinyModels) -> None:
    with service_with_faults(tiny, load_total_seconds=0.5) as faults:
        profile = faults.profile("endless-load", {"load_seconds": 60})
        assert faults.service.client.get("/version").json()["engine"]
        began = time.monotonic()
        answer = start(faults.service, profile)
        assert 0.5 <= time.monotonic() - began < 5
        assert (answer.status_code, answer.json()["reason"]) == (502, "load-timeout")
        instance = faults.service.newest(profile)
        # Until it is loaded the engine has no handler: TERM ends it at once.
        assert (instance["state"], instance["exit_code"]) == ("failed", -15)
        assert all(wait_for_end(fact["pid"], 0) for fact in faults.facts(profile, "started"))


def test_a_stop_while_it_loads(faults: Faults) -> None:
    profile = faults.profile("stopped-load", {"load_seconds": 60})
    faults.service.client.post(f"/profiles/{profile}/start")
    reached(faults.service, profile, "loading")
    instance = faults.service.stop(profile)
    assert (instance["state"], instance["exit_code"], instance["ready_at"]) == ("stopped", -15, None)


def test_whoever_waits_for_a_start_hears_of_the_stop(faults: Faults) -> None:
    profile = faults.profile("stopped-start", {"load_seconds": 60})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(start, faults.service, profile)
        reached(faults.service, profile, "loading")
        faults.service.stop(profile)
        answer = waiting.result()
    assert (answer.status_code, answer.json()["reason"]) == (502, "stopped")


def test_a_server_with_another_key_is_not_ours(tiny: TinyModels) -> None:
    with service_with_faults(tiny, engine_transport="tcp") as faults:
        ours = faults.profile("ours", {})
        instance = faults.service.start(ours)
        assert "127.0.0.1" in instance["argv"]
        assert faults.service.complete(ours).status_code == 200

        foreign = faults.profile("foreign", {"wrong_key": "except_health"})
        answer = start(faults.service, foreign)
        assert (answer.status_code, answer.json()["reason"]) == (502, "address-foreign"), answer.text
        assert wait_for_end(faults.facts(foreign, "started")[-1]["pid"], 0)


def test_speculation_that_did_not_begin_is_a_degradation(faults: Faults) -> None:
    profile = faults.profile("inactive", {"speculative": False}, **DRAFT)
    instance = faults.service.start(profile)
    assert instance["degradations"] == ["speculation-inactive"]
    assert (instance["speculation"]["asked"], instance["speculation"]["active"]) == (True, False)
    row = faults.service.row(faults.service.complete(profile))
    assert (row["outcome"], row["draft_tokens"], row["accepted_tokens"]) == ("completed", None, None)
    faults.service.stop(profile)


@pytest.mark.parametrize(
    ("degradation", "scenario"),
    [("speculation-inactive", {"speculative": False}), ("context-smaller-than-asked", {"n_ctx_slot": 512})],
)
def test_a_degraded_server_is_stopped_where_the_profile_says_so(
    faults: Faults, degradation: str, scenario: dict[str, Any]
) -> None:
    profile = faults.profile(f"strict-{degradation}", scenario, **DRAFT, serving={"on_degraded": "stop"})
    answer = start(faults.service, profile)
    assert (answer.status_code, answer.json()["reason"]) == (502, degradation)
    instance = faults.service.newest(profile)
    assert (instance["state"], instance["degradations"], instance["ready_at"]) == ("failed", [degradation], None)
    assert wait_for_end(faults.facts(profile, "started")[-1]["pid"], 0)


def test_an_engine_that_has_gone_is_named(tiny: TinyModels, tmp_path: Path) -> None:
    link = tmp_path / "llama-server"
    link.symlink_to(FAKE_ENGINE)
    with service_with_faults(tiny, engine=str(link)) as faults:
        profile = faults.profile("gone", {})
        faults.service.start(profile)
        link.unlink()
        answer = start(faults.service, profile)
        # What runs goes on running; only a new start needs the engine's file.
        assert answer.status_code == 200
        faults.service.stop(profile)
        answer = start(faults.service, profile)
        assert (answer.status_code, answer.json()["code"]) == (503, "engine-not-found")
        counted = {"profile": profile, "result": "not-begun", "reason": "engine-not-found"}
        assert faults.service.metric("paceline_instance_starts_total", **counted) == 1
        assert str(link) in answer.json()["detail"]
        assert faults.service.client.get("/ready").status_code == 503
