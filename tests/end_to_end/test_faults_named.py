"""Every way in which an engine lets us down has its name, in time, and leaves nothing behind."""

import os
import signal
import time
from pathlib import Path

from fixtures.faulty_engine import Faults, ended, reached, service_with_faults, start
from fixtures.tiny_models import TinyModels
from service import wait_for_end


def test_a_card_that_is_full(faults: Faults) -> None:
    profile = faults.profile("full-card", {"load_seconds": 0.2, "cuda_out_of_memory": True})
    answer = start(faults.service, profile)
    assert (answer.status_code, answer.json()["reason"]) == (502, "out-of-memory")
    assert any("out of memory" in line for line in answer.json()["last_lines"])


def test_a_death_at_a_third_of_the_load(faults: Faults) -> None:
    dies = {"stderr": ["0.01.000.000 E srv    load_model: something broke"], "signal": "SIGABRT"}
    scenario = {"load_seconds": 0.6, "load_grows_bytes": 1 << 26, "fail_at": 0.3, "fail_during_load": dies}
    profile = faults.profile("dies-at-a-third", scenario)
    answer = start(faults.service, profile)
    assert (answer.status_code, answer.json()["reason"]) == (502, "killed-by-signal-6")
    assert "something broke" in answer.json()["detail"]


def test_an_abort_after_it_was_ready_is_followed_by_a_new_life(tiny: TinyModels) -> None:
    with service_with_faults(tiny, restart_pause_seconds=0.05) as faults:
        scenario = {"launches": [{"abort_after_ready_seconds": 0.3}, {}]}
        profile = faults.profile("aborts-later", scenario)
        first = faults.service.start(profile)
        assert ended(faults.service, first["id"])["reason"] == "killed-by-signal-6"
        reached(faults.service, profile, "ready")
        assert faults.service.newest(profile)["id"] != first["id"]


def test_somebody_else_answers_at_its_port(tiny: TinyModels) -> None:
    """It may pass, so it is tried again, a few times."""
    with service_with_faults(tiny, engine_transport="tcp", restart_pause_seconds=0.05) as faults:
        scenario = {"launches": [{"foreign_listener": True}, {}]}
        profile = faults.profile("port-taken", scenario)
        answer = start(faults.service, profile)
        assert (answer.status_code, answer.json()["reason"]) == (502, "address-foreign")
        reached(faults.service, profile, "ready")
        assert faults.service.complete(profile).status_code == 200
        for fact in faults.facts(profile, "foreign"):
            # The listener is no child of ours: it is not for the service to end.
            if Path(f"/proc/{fact['pid']}").exists():
                os.kill(fact["pid"], signal.SIGKILL)


def test_a_grandchild_that_holds_its_pipes_does_not_keep_an_end_from_being_seen(faults: Faults) -> None:
    profile = faults.profile("grandchild", {"leaves_grandchild": "session"})
    instance = faults.service.start(profile)
    (grandchild,) = faults.facts(profile, "grandchild")
    try:
        os.kill(instance["pid"], signal.SIGKILL)
        began = time.monotonic()
        assert ended(faults.service, instance["id"])["reason"] == "killed-by-signal-9"
        assert time.monotonic() - began < 5
    finally:
        os.kill(grandchild["pid"], signal.SIGKILL)
    faults.service.stop(profile)


def test_a_zombie_among_its_children_is_nothing_to_wait_for(faults: Faults) -> None:
    profile = faults.profile("zombie", {"leaves_zombie": True})
    instance = faults.service.start(profile)
    assert faults.facts(profile, "zombie")
    assert faults.service.stop(profile)["state"] == "stopped"
    assert wait_for_end(instance["pid"], 0)
