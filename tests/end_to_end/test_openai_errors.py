"""Every error that a user of the official OpenAI client can meet: its class, what it says, and whose row it is."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from fixtures.embedded_engine import free_port
from fixtures.faulty_engine import Faults, service_with_faults
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, eventually

ADMIN = "configured-marker-key-0123456789"
MESSAGES: Any = [{"role": "user", "content": "hello"}]
MOST_BODY_BYTES = 100_000
BUSY = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}


@pytest.fixture(scope="module")
def faults(tiny: TinyModels) -> Iterator[Faults]:
    with service_with_faults(
        tiny, admin_key=ADMIN, max_body_bytes=MOST_BODY_BYTES, sign_of_life_seconds=0.1
    ) as running:
        running.service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        running.profile("good", {"answer_tokens": 3})
        running.profile("other", {})
        yield running


@contextmanager
def client_of(faults: Faults, *, key: str = ADMIN, **more: Any) -> Iterator[openai.OpenAI]:
    chosen: dict[str, Any] = {"max_retries": 0, "timeout": DEADLINE_SECONDS, **more}
    with openai.OpenAI(base_url=f"{faults.service.base_url}/v1", api_key=key, **chosen) as client:
        yield client


def started(faults: Faults, profile: str, scenario: Mapping[str, Any]) -> str:
    """A profile that runs: one that does not promises a stream before there is an error."""
    faults.service.start(faults.profile(profile, scenario))
    return profile


def refused(faults: Faults, kind: type[openai.APIStatusError], model: str = "good", **asked: Any) -> Any:
    """The error of one request; its row is that of the id that it carries."""
    with client_of(faults) as client, pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": model, "messages": MESSAGES, **asked})
    assert type(caught.value) is kind
    row = faults.service.row_of(str(caught.value.request_id))
    assert row["status_code"] == caught.value.status_code
    assert row["outcome"] != "completed"
    return caught.value


def rows(faults: Faults, profile: str) -> list[dict[str, Any]]:
    """What was recorded of the profile, oldest first."""
    items = faults.service.client.get("/requests", params={"profile": profile}).json()["items"]
    return list(reversed(items))


@pytest.mark.parametrize("stream", [False, True])
def test_400_of_ours(faults: Faults, stream: bool) -> None:
    error = refused(faults, openai.BadRequestError, model="", stream=stream)
    assert (error.code, error.type, error.param) == ("model_not_named", "invalid_request_error", "model")


@pytest.mark.parametrize("stream", [False, True])
def test_400_of_the_engine(faults: Faults, stream: bool) -> None:
    body = {"error": {"message": "too long", "type": "exceed_context_size_error", "code": 400}}
    model = started(faults, f"too-long-{stream:d}", {"error_status": {"status": 400, "body": body}})
    error = refused(faults, openai.BadRequestError, model=model, stream=stream)
    assert (str(error.code), error.type) == ("400", "exceed_context_size_error")
    assert "too long" in error.message


def test_400_for_log_probabilities_that_would_be_wrong(faults: Faults) -> None:
    model = faults.profile("speculates", {}, speculation={"method": "draft", "draft": {"path": "draft.gguf"}})
    error = refused(faults, openai.BadRequestError, model=model, logprobs=True)
    assert (error.code, error.type) == ("logprobs_wrong", "invalid_request_error")


def test_401(faults: Faults) -> None:
    with client_of(faults, key="sk-wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model="good", messages=MESSAGES)
    assert (caught.value.code, caught.value.type) == ("access_denied", "authentication_error")
    assert caught.value.response.headers["www-authenticate"] == "Bearer"


def test_403(faults: Faults) -> None:
    made = faults.service.client.post("/keys", json={"name": "one", "profiles": ["good"]}).json()
    with client_of(faults, key=made["secret"]) as client, pytest.raises(openai.PermissionDeniedError) as caught:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert (caught.value.code, caught.value.type) == ("access_denied", "permission_error")
    assert faults.service.row_of(str(caught.value.request_id))["client"] == "one"


def test_404(faults: Faults) -> None:
    error = refused(faults, openai.NotFoundError, model="no-such")
    assert (error.code, error.type, error.param) == ("model_unknown", "invalid_request_error", "model")
    assert "good" in error.message


def test_413(faults: Faults) -> None:
    error = refused(faults, openai.APIStatusError, messages=[{"role": "user", "content": "x" * MOST_BODY_BYTES}])
    assert (error.status_code, error.code) == (413, "body_too_large")


@pytest.mark.parametrize("stream", [False, True])
def test_429(faults: Faults, stream: bool) -> None:
    model = faults.profile(f"full-{stream:d}", {}, serving={"queue_limit": 0})
    error = refused(faults, openai.RateLimitError, model=model, stream=stream)
    assert (error.code, error.type) == ("queue_full", "rate_limit_error")
    assert error.response.headers["retry-after"] == "5"


@pytest.mark.parametrize("stream", [False, True])
def test_500_of_the_engine(faults: Faults, stream: bool) -> None:
    body = {"error": {"message": "no grammar", "type": "server_error", "code": 500}}
    model = started(faults, f"broken-{stream:d}", {"error_status": {"status": 500, "body": body}})
    error = refused(faults, openai.InternalServerError, model=model, stream=stream)
    assert (error.type, str(error.code)) == ("server_error", "500")


@pytest.mark.parametrize("stream", [False, True])
def test_502(faults: Faults, stream: bool) -> None:
    model = started(faults, f"cut-{stream:d}", {"cut_completions": {"after": 0}})
    error = refused(faults, openai.InternalServerError, model=model, stream=stream)
    assert (error.status_code, error.code, error.type) == (502, "upstream_failed", "server_error")


def test_an_error_of_the_engine_in_the_middle_of_a_stream(faults: Faults) -> None:
    told = {"message": "Context size has been exceeded.", "type": "server_error", "code": 500}
    model = faults.profile("breaks", {"midstream_error": {"after_chunks": 2, "error": told}})
    with client_of(faults, max_retries=2) as client:
        stream = client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="Context size has been exceeded") as caught:
            list(stream)
    assert type(caught.value) is openai.APIError
    assert (caught.value.code, caught.value.type) == ("500", "server_error")
    assert faults.service.row_of(stream.response.headers["x-request-id"])["outcome"] == "upstream_error"
    assert len(rows(faults, model)) == 1


def test_an_engine_that_is_stopped_in_the_middle_of_a_stream(faults: Faults) -> None:
    model = faults.profile("stopped", {"chunk_interval_seconds": 0.02})
    with client_of(faults, max_retries=2) as client:
        stream = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=4000, stream=True)
        next(iter(stream))
        faults.service.stop(model, drain_seconds=0)
        with pytest.raises(openai.APIError, match="the instance was stopped") as caught:
            list(stream)
    assert type(caught.value) is openai.APIError
    assert (caught.value.code, caught.value.type) == ("upstream_failed", "server_error")
    assert faults.service.row_of(stream.response.headers["x-request-id"])["outcome"] == "upstream_failed"


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_somebody_cancels(faults: Faults, stream: bool) -> None:
    """It is not sent again: it was meant to end."""
    model = faults.profile(f"cancelled-{stream:d}", {"chunk_interval_seconds": 0.2})
    with client_of(faults, max_retries=2) as client, ThreadPoolExecutor(1) as pool:

        def ask() -> None:
            answer = client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)
            for _ in answer if stream else ():
                pass

        asked = pool.submit(ask)
        active = {"state": "active", "profile": model}
        found = eventually(lambda: faults.service.client.get("/requests", params=active).json()["items"] or None)
        eventually(lambda: faults.facts(model, "request") or None)
        faults.service.client.post(f"/requests/{found[0]['id']}/cancel")
        with pytest.raises(openai.APIError) as caught:
            asked.result(DEADLINE_SECONDS)
    assert caught.value.code == "request_cancelled"
    assert faults.service.row_of(found[0]["id"])["outcome"] == "cancelled"
    assert len(rows(faults, model)) == 1


def test_no_service(tiny: TinyModels) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with openai.OpenAI(base_url=url, api_key="x", max_retries=0) as client, pytest.raises(openai.APIConnectionError):
        client.models.list()


def test_a_client_that_does_not_wait_for_the_load(faults: Faults) -> None:
    model = faults.profile("slow-load", {"load_seconds": 1.5, "answer_tokens": 3})
    with client_of(faults, timeout=0.4) as client:
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model=model, messages=MESSAGES)
        # A stream gets a sign of life meanwhile, so that the same patience is enough.
        stream = client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
        assert [choice.finish_reason for chunk in stream for choice in chunk.choices][-1] == "stop"
    faults.service.row_of(stream.response.headers["x-request-id"])
    gone, answered = rows(faults, model)
    assert (gone["outcome"], answered["outcome"]) == ("client_gone", "completed")
    assert min(gone["queue_seconds"], answered["queue_seconds"]) > 0.3
    assert len(faults.facts(model, "started")) == 1


RETRIED = {
    "busy": ({"error_status": {"status": 503, "body": BUSY, "times": 1}}, "upstream_error"),
    "broke-off": ({"cut_completions": {"after": 0, "times": 1}}, "upstream_failed"),
}


@pytest.mark.parametrize("name", RETRIED)
def test_the_client_asks_again_by_itself_and_each_attempt_has_its_row(faults: Faults, name: str) -> None:
    scenario, outcome = RETRIED[name]
    model = faults.profile(f"retried-{name}", {**scenario, "answer_tokens": 3})
    with client_of(faults, max_retries=2) as client:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES)
    assert raw.retries_taken == 1
    faults.service.row_of(raw.headers["x-request-id"])
    assert [row["outcome"] for row in rows(faults, model)] == [outcome, "completed"]


@pytest.mark.slow
def test_the_client_waits_as_long_as_it_is_told(faults: Faults) -> None:
    """Earns, in five seconds: who finds the queue full comes back by itself when the profile may be ready."""
    model = faults.profile("comes-back", {"load_seconds": 1, "answer_tokens": 3}, serving={"queue_limit": 0})
    faults.service.client.post(f"/profiles/{model}/start")
    with client_of(faults, max_retries=1) as client:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES)
    assert raw.retries_taken == 1
    faults.service.row_of(raw.headers["x-request-id"])
    first, second = rows(faults, model)
    assert (first["status_code"], second["status_code"]) == (429, 200)


def test_what_stays_as_it_is_is_not_asked_again(faults: Faults) -> None:
    """A launch that is refused for more than room, and an engine that ends while it loads."""
    lost = faults.service.add({"id": "lost", "target": {"path": "lost.gguf"}})
    ends = faults.profile("ends", {"fail_during_load": {"stderr": ["error loading model: no"], "exit_code": 1}})
    for model, status, code in ((lost, 503, "launch_refused"), (ends, 502, "instance_failed")):
        with client_of(faults, max_retries=2) as client, pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model=model, messages=MESSAGES)
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert "retry-after" not in caught.value.response.headers
        faults.service.row_of(str(caught.value.request_id))
        assert len(rows(faults, model)) == 1
    assert len(faults.facts(ends, "started")) == 1
