"""An engine that lives, says that it is healthy, and fails its requests one after another."""

from typing import Any

from fixtures.faulty_engine import Faults, ended, service_with_faults
from fixtures.tiny_models import TinyModels
from service import eventually

SETTINGS: dict[str, Any] = {"canary_failures": 3, "canary_probe_seconds": 0.5, "restart_pause_seconds": 0.05}


def test_requests_that_fail_one_after_another_lead_to_a_probe_and_to_the_end(tiny: TinyModels) -> None:
    with service_with_faults(tiny, canary_silence_seconds=0.4, **SETTINGS) as faults:
        service = faults.service
        profile = faults.profile("cuts", {"launches": [{"cut_completions": {"after": 1}}, {}]})
        first = service.start(profile)
        assert service.complete(profile).status_code == 200
        for _ in range(3):
            failed = service.complete(profile)
            assert (failed.status_code, failed.json()["error"]["code"]) == (502, "upstream_failed")
        instance = ended(service, first["id"])
        assert (instance["state"], instance["reason"]) == ("failed", "unresponsive")
        assert "3 requests in a row failed" in instance["failure"]["message"]
        # It asked for itself before it judged.
        assert [fact for fact in faults.facts(profile, "request") if fact["target"] == "/completion"]
        answer = service.complete(profile)
        assert answer.status_code == 200
        assert service.row(answer)["instance_id"] != first["id"]


def test_a_passing_trouble_leads_to_a_probe_and_to_nothing_more(tiny: TinyModels) -> None:
    with service_with_faults(tiny, canary_silence_seconds=0.4, **SETTINGS) as faults:
        service = faults.service
        profile = faults.profile("recovers", {"cut_completions": {"after": 0, "times": 3}})
        first = service.start(profile)
        for _ in range(3):
            assert service.complete(profile).status_code == 502
        answered = eventually(lambda: [fact for fact in faults.facts(profile, "answered") if _is_probe(fact)] or None)
        assert answered[0]["status"] == 200
        assert service.complete(profile).status_code == 200
        assert service.newest(profile)["id"] == first["id"]
        assert service.state(profile) == "ready"


def test_fewer_failures_are_no_reason_to_ask(faults: Faults) -> None:
    profile = faults.profile("stumbles", {"cut_completions": {"after": 0, "times": 2}})
    faults.service.start(profile)
    assert [faults.service.complete(profile).status_code for _ in range(3)] == [502, 502, 200]
    assert not [fact for fact in faults.facts(profile, "request") if fact["target"] == "/completion"]
    faults.service.stop(profile)


def _is_probe(fact: dict[str, Any]) -> bool:
    return bool(fact["path"] == "/completion")
