"""Requests in flight: listed, and ended by somebody who may."""

import json

from fixtures.faulty_engine import Faults, reached
from service import InFlight, completion, eventually

STREAMS = {"chunk_interval_seconds": 0.05}


def test_a_stream_in_flight_is_listed_and_cancelled(faults: Faults) -> None:
    service = faults.service
    profile = faults.profile("listed-stream", STREAMS)
    service.start(profile)
    request = InFlight(service, completion(profile, max_tokens=1000, stream=True))
    assert request.has_begun()
    (shown,) = service.client.get("/requests", params={"state": "active", "profile": profile}).json()["items"]
    assert (shown["profile_id"], shown["stream"], shown["outcome"], shown["status_code"]) == (profile, True, None, 200)
    assert shown["duration_seconds"] > 0
    assert service.client.get("/requests", params={"state": "active", "profile": "other"}).json()["items"] == []

    cancelled = service.client.post(f"/requests/{shown['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["id"]) == (202, shown["id"])
    request.outcome()
    assert json.loads(request.payloads[-1])["error"]["code"] == "request_cancelled"
    row = service.row_of(shown["id"])
    assert row["outcome"] == "cancelled"
    assert eventually(lambda: faults.facts(profile, "client_disconnected") or None)

    again = service.client.post(f"/requests/{shown['id']}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "request-over")
    unknown = service.client.post("/requests/0000000000000001/cancel")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "request-not-found")
    service.stop(profile)


def test_one_that_waits_for_its_profile_is_cancelled_too(faults: Faults) -> None:
    service = faults.service
    profile = faults.profile("cancelled-while-queued", {"load_seconds": 2})
    request = InFlight(service, completion(profile))
    reached(service, profile, "loading")
    (shown,) = service.client.get("/requests", params={"state": "active", "profile": profile}).json()["items"]
    assert (shown["instance_id"], shown["status_code"]) == (None, None)
    assert service.client.post(f"/requests/{shown['id']}/cancel").status_code == 202
    answer, _ = request.outcome()
    assert answer is not None
    assert answer.status_code == 499
    assert service.row_of(shown["id"])["outcome"] == "cancelled"
    service.stop(profile)


def test_those_in_flight_have_no_other_filters(faults: Faults) -> None:
    refused = faults.service.client.get("/requests", params={"state": "active", "outcome": "completed"})
    assert refused.status_code == 422
    assert faults.service.client.get("/requests", params={"state": "asleep"}).status_code == 422
