"""GET /requests, /requests/{id} and /stats."""

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest
from fakes.acceptance_windows import window
from fakes.finished_requests import INSTANCE_ID, PLAIN_CONTEXT, UNDRAFTED, finished, rejected
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.no_requests import NoneActive

from app.api.problems import install
from app.api.requests import router
from app.database import Database
from app.identifiers import id_text
from app.proxy.observer import RequestFinished
from app.telemetry.recorder import Recorder
from app.telemetry.windows import WindowRecorder

EVENTS = [
    finished(0, client_request_id="mine"),
    finished(1, context=PLAIN_CONTEXT, report=UNDRAFTED),
    rejected(2),
    finished(3, time_to_first_token_us=750_000),
]
IDS = [id_text(event.request_id) for event in EVENTS]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}", linger_seconds=0.01)
    database.migrate()
    database.start()
    WindowRecorder(Recorder(database).take).on_window(window())
    record(database, EVENTS)
    app = FastAPI()
    install(app)
    app.include_router(router(database, NoneActive()))
    yield TestClient(app)
    database.close()


def record(database: Database, events: list[RequestFinished]) -> None:
    recorder = Recorder(database)
    for event in events:
        recorder.on_request_finished(event)
    # The writer works in order: what it was given before this is committed when this is.
    done, _ = wait([database.submit(lambda _session: None)], timeout=10)
    assert done
    assert recorder.lost_rows == 0


def test_the_list_is_newest_first(client: TestClient) -> None:
    body = client.get("/requests").json()
    assert [item["id"] for item in body["items"]] == IDS[::-1]
    assert body["next_cursor"] is None
    assert body["items"][0] == {
        "id": IDS[3],
        "started_at": "2025-10-09T08:53:23Z",
        "profile_id": "gemma",
        "revision": 3,
        "instance_id": id_text(INSTANCE_ID),
        "engine_build": "b11434-abc",
        "argv_hash": "0123456789abcdef",
        "device_set": "CUDA0,CUDA1",
        "requested_model": "gemma",
        "route_reason": "id",
        "endpoint": "chat_completions",
        "stream": True,
        "outcome": "completed",
        "status_code": 200,
        "error": None,
        "queue_seconds": 0.0015,
        "time_to_first_token_seconds": 0.75,
        "duration_seconds": 2.0,
        "prompt_tokens": 30,
        "cached_tokens": 10,
        "generated_tokens": 65,
        "prompt_seconds": 0.2,
        "generation_seconds": 1.6,
        "generation_tokens_per_second": 40.0,
        "draft_tokens": 50,
        "accepted_tokens": 40,
        "acceptance_rate": 0.8,
        "mean_acceptance_length_estimate": 2.6,
        "method": "draft",
        "category": None,
        "finish_reason": "stop",
        "client": None,
    }


def test_what_was_not_reported_is_null_in_json(client: TestClient) -> None:
    item = client.get(f"/requests/{IDS[1]}").json()
    drafts = ("draft_tokens", "accepted_tokens", "acceptance_rate", "mean_acceptance_length_estimate")
    assert [item[name] for name in drafts] == [None] * 4


def test_pages_follow_the_cursor(client: TestClient) -> None:
    first = client.get("/requests", params={"limit": 3}).json()
    assert [item["id"] for item in first["items"]] == IDS[:0:-1]
    second = client.get("/requests", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in second["items"]] == IDS[:1]
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("profile=gemma", [3, 0]),
        ("outcome=rejected", [2]),
        ("method=none", [1]),
        ("since=2025-10-09T08:53:22Z", [3, 2]),
        ("since=2025-10-09T10:53:22%2B02:00&until=2025-10-09T08:53:23.000Z", [2]),
        ("since=2025-10-09T10:53:22+02:00", [3, 2]),
        ("until=2025-10-09t08:53:20.001z", [0]),
        ("profile=gemma&since=2025-10-09T08:53:21Z&limit=1", [3]),
    ],
)
def test_filters(client: TestClient, query: str, expected: list[int]) -> None:
    items = client.get(f"/requests?{query}").json()["items"]
    assert [item["id"] for item in items] == [IDS[number] for number in expected]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "many"])
def test_a_limit_out_of_bounds_is_refused(client: TestClient, limit: str) -> None:
    answer = client.get("/requests", params={"limit": limit})
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == ["limit"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/requests?profil=gemma", "profil"),
        ("/requests?group_by=profile", "group_by"),
        ("/requests?outcome=won", "outcome"),
        ("/requests?cursor=nonsense", "cursor"),
        ("/requests?since=yesterday", "since"),
        ("/requests?since=1760000000", "since"),
        ("/requests?until=2025-10-09", "until"),
        ("/requests?until=2025-10-09T08:53:20", "until"),
        ("/requests?until=2025-13-09T08:53:20Z", "until"),
        ("/requests?profile=", "profile"),
        ("/requests?method=banana", "method"),
        ("/stats?method=", "method"),
        ("/stats?since=2025-10-09T08:53:20Z&until=2025-10-09T10:53:20%2B02:00", "until"),
        ("/stats?limit=3", "limit"),
        ("/stats?group_by=weather", "group_by"),
        ("/stats?group_by=profile,day", "group_by"),
        ("/stats?category=nonsense", "category"),
    ],
)
def test_a_question_that_makes_no_sense_names_its_parameter(client: TestClient, path: str, field: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 422
    assert answer.json()["code"] == "query-invalid"
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


def test_one_request_by_either_id(client: TestClient) -> None:
    assert client.get(f"/requests/{IDS[0]}").json() == client.get("/requests/mine").json()
    missing = client.get("/requests/another")
    assert (missing.status_code, missing.json()["code"]) == (404, "request-not-found")


def test_stats_by_profile(client: TestClient) -> None:
    body = client.get("/stats").json()
    assert [item["profile"] for item in body["items"]] == [None, "gemma", "plain"]
    assert body["items"][1] == {
        "profile": "gemma",
        "requests": 2,
        "outcomes": {"completed": 2},
        "prompt_tokens": 60,
        "cached_tokens": 20,
        "generated_tokens": 130,
        "draft_tokens": 100,
        "accepted_tokens": 80,
        "acceptance_rate": 0.8,
        "generation_tokens_per_second": {"p50": 40.0, "p90": 40.0, "p99": 40.0, "overall": 40.0},
        "time_to_first_token_seconds": {"p50": 0.25, "p90": 0.75, "p99": 0.75},
        "time_per_output_token_seconds": {"p50": 0.025, "p90": 0.025, "p99": 0.025},
        "queue_seconds": {"p50": 0.0015, "p90": 0.0015, "p99": 0.0015},
        "percentiles_relative_error": 0.0,
        "engine_acceptance": {
            "drafts": 10,
            "draft_tokens": 28,
            "accepted_tokens": 21,
            "acceptance_rate": 0.75,
            "mean_acceptance_length": 3.1,
            "acceptance_rate_by_position": [0.9, 0.8, 0.4],
            "rounded_to": 1,
        },
        "provenance": {
            "revision": [3],
            "argv_hash": ["0123456789abcdef"],
            "engine_build": ["b11434-abc"],
            "device_set": ["CUDA0,CUDA1"],
            "mixed": [],
        },
        "speedup": None,
    }
    assert [item["engine_acceptance"] is None for item in body["items"]] == [True, False, True]
    assert body["items"][2]["acceptance_rate"] is None
    assert body["items"][0]["generation_tokens_per_second"] is None


def test_what_engines_counted_is_told_where_windows_can_tell(client: TestClient) -> None:
    def told(**query: str) -> list[bool]:
        items = client.get("/stats", params={"profile": "gemma", **query}).json()["items"]
        return [item["engine_acceptance"] is not None for item in items]

    assert told(group_by="method,profile,method") == told(group_by="") == [True]
    assert told(group_by="profile,category") == told(outcome="completed") == [False]


def test_an_hour_in_which_only_a_window_ended_has_an_item(client: TestClient) -> None:
    """The window is of today's clock, the requests of 2025: whoever adds up hours has all that engines counted."""
    items = client.get("/stats", params={"profile": "gemma", "group_by": "hour"}).json()["items"]
    assert [(item["requests"], item["engine_acceptance"] is not None) for item in items] == [(2, False), (0, True)]
    assert items[1]["generation_tokens_per_second"] is None


def test_stats_take_filters_and_no_group(client: TestClient) -> None:
    (item,) = client.get("/stats", params={"group_by": "", "outcome": "completed"}).json()["items"]
    assert item["requests"] == 3
    assert "profile" not in item


def test_stats_by_what_and_when(client: TestClient) -> None:
    items = client.get("/stats?group_by=hour, category,method").json()["items"]
    assert [{name: item[name] for name in ("hour", "category", "method", "requests")} for item in items] == [
        {"hour": "2025-10-09T08:00:00Z", "category": None, "method": None, "requests": 1},
        {"hour": "2025-10-09T08:00:00Z", "category": None, "method": "draft", "requests": 2},
        {"hour": "2025-10-09T08:00:00Z", "category": None, "method": "none", "requests": 1},
    ]


def test_groups_that_are_unknown_are_all_named(client: TestClient) -> None:
    refused = client.get("/stats?group_by=weather,profile,day").json()
    assert refused["detail"].startswith("group_by: 'weather', 'day' cannot be grouped by; profile, revision, method,")
