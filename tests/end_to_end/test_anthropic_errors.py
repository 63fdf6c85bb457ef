"""Every error that a user of the official Anthropic client can meet: its class, its shape, and whose row it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest
from fixtures.embedded_engine import free_port
from fixtures.faulty_engine import Faults, service_with_faults
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS

ADMIN = "configured-marker-key-0123456789"
ASKED: Any = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}
MOST_BODY_BYTES = 100_000


@pytest.fixture(scope="module")
def faults(tiny: TinyModels) -> Iterator[Faults]:
    settings = {"admin_key": ADMIN, "max_body_bytes": MOST_BODY_BYTES, "sign_of_life_seconds": 0.1}
    with service_with_faults(tiny, **settings) as running:
        running.service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        running.profile("good", {"answer_tokens": 3})
        running.profile("other", {})
        yield running


@contextmanager
def client_of(faults: Faults, *, key: str = ADMIN, **more: Any) -> Iterator[anthropic.Anthropic]:
    chosen: dict[str, Any] = {"max_retries": 0, "timeout": DEADLINE_SECONDS, **more}
    with anthropic.Anthropic(base_url=faults.service.base_url, api_key=key, **chosen) as client:
        yield client


def refused(faults: Faults, kind: type[anthropic.APIStatusError], model: str = "good", **more: Any) -> Any:
    """The inner error of one request, which is of that class; its row is that of the id that the class shows."""
    with client_of(faults) as client, pytest.raises(kind) as caught:
        client.messages.create(**{"model": model, **ASKED, **more})
    assert type(caught.value) is kind
    row = faults.service.row_of(str(caught.value.request_id))
    assert (row["status_code"], row["endpoint"]) == (caught.value.status_code, "messages")
    assert row["outcome"] != "completed"
    body: Any = caught.value.body
    assert body["type"] == "error"
    return body["error"]


def rows(faults: Faults, profile: str) -> list[dict[str, Any]]:
    """What was recorded of the profile, oldest first."""
    items = faults.service.client.get("/requests", params={"profile": profile}).json()["items"]
    return list(reversed(items))


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_names_no_model(faults: Faults, stream: bool) -> None:
    assert refused(faults, anthropic.BadRequestError, model="", stream=stream)["type"] == "invalid_request_error"


def test_a_wrong_key(faults: Faults) -> None:
    with client_of(faults, key="sk-wrong") as client, pytest.raises(anthropic.AuthenticationError) as caught:
        client.messages.create(model="good", **ASKED)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")


def test_a_key_as_a_token(faults: Faults) -> None:
    """As ANTHROPIC_AUTH_TOKEN gives it: in Authorization, and no x-api-key beside it."""
    with anthropic.Anthropic(base_url=faults.service.base_url, auth_token=ADMIN, api_key=None) as client:
        assert client.messages.create(model="good", **ASKED).type == "message"


def test_a_profile_that_the_key_may_not_use(faults: Faults) -> None:
    made = faults.service.client.post("/keys", json={"name": "one", "profiles": ["good"]}).json()
    with client_of(faults, key=made["secret"]) as client, pytest.raises(anthropic.PermissionDeniedError) as caught:
        client.messages.create(model="other", **ASKED)
    body: Any = caught.value.body
    assert body["error"]["type"] == "permission_error"
    assert faults.service.row_of(str(caught.value.request_id))["client"] == "one"


def test_a_model_that_is_not_there(faults: Faults) -> None:
    error = refused(faults, anthropic.NotFoundError, model="no-such")
    assert error["type"] == "not_found_error"
    assert "good" in error["message"]


def test_a_body_that_is_too_large(faults: Faults) -> None:
    messages = [{"role": "user", "content": "x" * MOST_BODY_BYTES}]
    assert refused(faults, anthropic.RequestTooLargeError, messages=messages)["type"] == "request_too_large"


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue(faults: Faults, stream: bool) -> None:
    model = faults.profile(f"full-{stream:d}", {}, serving={"queue_limit": 0})
    assert refused(faults, anthropic.RateLimitError, model=model, stream=stream)["type"] == "rate_limit_error"


def test_an_engine_that_breaks_off(faults: Faults) -> None:
    model = faults.profile("cut", {"cut_completions": {"after": 0}})
    assert refused(faults, anthropic.InternalServerError, model=model)["type"] == "api_error"


def test_an_error_of_the_engine_passes_as_it_wrote_it(faults: Faults) -> None:
    told = {"error": {"message": "no grammar", "type": "server_error", "code": 500}}
    model = faults.profile("broken", {"error_status": {"status": 500, "body": told}})
    with client_of(faults) as client, pytest.raises(anthropic.InternalServerError, match="no grammar") as caught:
        client.messages.create(model=model, **ASKED)
    assert caught.value.body == told
    assert faults.service.row_of(str(caught.value.request_id))["outcome"] == "upstream_error"


def test_an_engine_that_is_stopped_in_the_middle_of_a_stream(faults: Faults) -> None:
    model = faults.profile("stopped", {"chunk_interval_seconds": 0.02})
    asked = {**ASKED, "model": model, "max_tokens": 4000}
    with client_of(faults, max_retries=2) as client, client.messages.stream(**asked) as stream:
        events = iter(stream)
        next(events)
        faults.service.stop(model, drain_seconds=0)
        with pytest.raises(anthropic.APIStatusError, match="the instance was stopped") as caught:
            list(events)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "api_error")
    assert faults.service.row_of(str(caught.value.request_id))["outcome"] == "upstream_failed"
    assert len(rows(faults, model)) == 1


def test_no_service() -> None:
    with (
        anthropic.Anthropic(base_url=f"http://127.0.0.1:{free_port()}", api_key="x", max_retries=0) as client,
        pytest.raises(anthropic.APIConnectionError),
    ):
        client.messages.create(model="good", **ASKED)


def test_a_client_that_does_not_wait_for_the_load(faults: Faults) -> None:
    model = faults.profile("slow-load", {"load_seconds": 1.5, "answer_tokens": 3})
    with client_of(faults, timeout=0.4) as client:
        with pytest.raises(anthropic.APITimeoutError):
            client.messages.create(model=model, **ASKED)
        # A stream gets a sign of life meanwhile, so that the same patience is enough.
        with client.messages.stream(model=model, **ASKED) as stream:
            assert stream.get_final_message().stop_reason == "end_turn"
    faults.service.row_of(str(stream.request_id))
    assert [row["outcome"] for row in rows(faults, model)] == ["client_gone", "completed"]


def test_the_client_asks_again_where_that_helps_and_not_where_it_does_not(faults: Faults) -> None:
    once = faults.profile("once", {"cut_completions": {"after": 0, "times": 1}, "answer_tokens": 3})
    lost = faults.service.add({"id": "lost", "target": {"path": "lost.gguf"}})
    with client_of(faults, max_retries=2) as client:
        raw = client.messages.with_raw_response.create(model=once, **ASKED)
        assert raw.retries_taken == 1
        with pytest.raises(anthropic.APIStatusError, match="target-unreadable") as caught:
            client.messages.create(model=lost, **ASKED)
    assert caught.value.status_code == 503
    faults.service.row_of(raw.headers["request-id"])
    faults.service.row_of(str(caught.value.request_id))
    assert [row["outcome"] for row in rows(faults, once)] == ["upstream_failed", "completed"]
    assert [row["outcome"] for row in rows(faults, lost)] == ["rejected"]
