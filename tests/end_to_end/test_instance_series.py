"""How starts and restarts of real instances, and the requests beside them, show as series."""

import os
import signal

from fixtures.faulty_engine import Faults
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from service import InFlight, completion, eventually

from app.metrics.catalogue import families, name_of


def test_starts_restarts_and_requests_in_flight(faults: Faults) -> None:
    service = faults.service
    profile = faults.profile("counted", {"chunk_interval_seconds": 0.02})

    def starts(result: str, reason: str = "") -> float | None:
        return service.metric("paceline_instance_starts_total", profile=profile, result=result, reason=reason)

    def restarts(cause: str) -> float | None:
        return service.metric("paceline_instance_restarts_total", profile=profile, cause=cause)

    assert (starts("ready"), restarts("failure")) == (0, 0)
    assert service.metric("paceline_instance_state", profile=profile, state="stopped") == 1
    assert service.metric("paceline_request_duration_seconds_count", profile=profile) is None
    instance = service.start(profile)
    assert starts("ready") == 1
    # Before anything is observed, so that no rate misses it.
    assert service.metric("paceline_request_duration_seconds_count", profile=profile) == 0
    request = InFlight(service, completion(profile, max_tokens=1000, stream=True))
    assert request.has_begun()
    assert service.metric("paceline_requests_in_flight", profile=profile) == 1

    os.kill(instance["pid"], signal.SIGKILL)
    eventually(lambda: restarts("failure") == 1)
    eventually(lambda: starts("ready") == 2)
    eventually(lambda: service.metric("paceline_requests_in_flight", profile=profile) == 0)
    assert (service.metric("paceline_request_queue_seconds_count", profile=profile) or 0) >= 1
    answer = service.client.post(f"/profiles/{profile}/restart", params={"wait": True})
    assert answer.status_code == 200, answer.text
    eventually(lambda: restarts("asked") == 1)
    service.stop(profile)


def test_slots_are_of_the_living_and_limits_of_the_profile_as_it_is_now(faults: Faults) -> None:
    service = faults.service
    profile = faults.profile(
        "slotted", {"chunk_interval_seconds": 0.02}, context={"slots": 3}, serving={"queue_limit": 5}
    )

    def told(name: str) -> float | None:
        return service.metric(f"paceline_instance_{name}", profile=profile)

    assert (told("slots"), told("leases"), told("queue_limit")) == (None, None, 5)
    service.start(profile)
    request = InFlight(service, completion(profile, max_tokens=1000, stream=True))
    assert request.has_begun()
    assert (told("slots"), told("leases"), told("queued")) == (3, 1, 0)
    changed = service.client.patch(f"/profiles/{profile}", json={"serving": {"queue_limit": 7}})
    assert changed.status_code == 200, changed.text
    assert (told("queue_limit"), service.metric("paceline_queue_limit")) == (7, 256)
    service.stop(profile, drain_seconds=0)
    request.outcome()
    assert (told("slots"), told("leases"), told("queue_limit")) == (None, None, 7)


def test_refused_and_failed_starts_say_why(faults: Faults) -> None:
    service = faults.service
    refused = faults.profile("refused-counted", {})
    changed = service.client.patch(f"/profiles/{refused}", json={"placement": {"devices": ["CUDA77"]}})
    assert changed.status_code == 200, changed.text
    assert service.client.post(f"/profiles/{refused}/start", params={"wait": True}).status_code == 409
    name = "paceline_instance_starts_total"
    assert service.metric(name, profile=refused, result="refused", reason="placement") == 1

    failing = faults.profile("failing-counted", {"fail_during_load": {"signal": "SIGKILL"}})
    service.client.post(f"/profiles/{failing}/start", params={"wait": True})
    eventually(lambda: service.metric(name, profile=failing, result="failed", reason="killed-by-signal") == 1)
    assert service.metric(name, profile=failing, result="ready") == 0


def test_the_database_and_the_host_are_told(faults: Faults) -> None:
    service = faults.service
    assert (service.metric("paceline_database_size_bytes") or 0) > 0
    eventually(lambda: service.metric("paceline_database_rows", table="request") is not None)
    lag_seconds = eventually(lambda: service.metric("paceline_database_writer_lag_seconds"))
    assert 0 < lag_seconds < 30
    total, available = (service.metric(f"paceline_host_memory_{name}_bytes") or 0 for name in ("size", "available"))
    assert 0 < available <= total


def test_prometheus_gets_what_it_asks_for(faults: Faults) -> None:
    answer = faults.service.client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    told = {name_of(family) for family in parse_openmetrics(answer.text)}
    assert told == {name_of(family) for family in families()}
