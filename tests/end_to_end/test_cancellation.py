"""A client that leaves frees its slot within a second, also while other streams keep the engine busy."""

import contextlib
import time

import httpx
import pytest
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, InFlight, Service, completion, eventually

LONG = 4000
CHAT = [{"role": "user", "content": "hello abc"}]


@pytest.fixture
def busy(service: Service, tiny: TinyModels) -> str:
    """A profile of two slots, one of which generates for long."""
    if service.client.get("/profiles/two-slots").status_code == 404:
        context = {"size": 8192, "slots": 2, "threads": 1}
        service.add({"id": "two-slots", "target": {"path": tiny.dense_target.name}, "context": context})
        service.start("two-slots")
    return "two-slots"


def working(service: Service, profile: str) -> int:
    slots = service.client.get(f"/upstream/{profile}/slots").json()
    return sum(slot["is_processing"] for slot in slots)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "hello abc"}),
        ("/v1/chat/completions", {"messages": CHAT}),
        ("/v1/chat/completions", {"messages": CHAT, "stream": True}),
    ],
    ids=["completion", "chat", "chat-stream"],
)
def test_its_slot_is_free_within_a_second_while_another_stream_runs(
    service: Service, busy: str, path: str, asked: dict[str, object]
) -> None:
    other = InFlight(service, completion(busy, max_tokens=LONG, stream=True, ignore_eos=True))
    assert other.has_begun()
    body = {"model": busy, "max_tokens": LONG, "temperature": 0, "ignore_eos": True, **asked}
    with httpx.Client(base_url=service.base_url, timeout=DEADLINE_SECONDS, trust_env=False) as client:
        request = client.build_request("POST", path, json=body)
        with contextlib.suppress(httpx.ReadTimeout):
            client.send(request, stream=True).close() if asked.get("stream") else leave(client, request)
    left = time.monotonic()
    eventually(lambda: True if working(service, busy) == 1 else None)
    assert time.monotonic() - left < 1.0
    assert other.is_running(), "the other stream was to run on"
    (shown,) = service.client.get("/requests", params={"state": "active", "profile": busy}).json()["items"][:1]
    service.client.post(f"/requests/{shown['id']}/cancel")
    other.outcome()
    eventually(lambda: True if working(service, busy) == 0 else None)


def leave(client: httpx.Client, request: httpx.Request) -> None:
    """Wait a moment for the answer in one piece, and go."""
    request.extensions["timeout"] = {"connect": 5.0, "read": 0.3, "write": 5.0, "pool": 5.0}
    client.send(request)
