"""The official Anthropic client against the service: what it sends is understood, what it gets it can parse."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from fixtures.draft_simulation import simulate_text
from fixtures.tiny_models import ALWAYS_RIGHT, TinyModels
from service import DEADLINE_SECONDS, Service

MODEL = "anthropic-chat"
ALIAS = "org/Tiny Chat:anthropic"
TOKENS = 12
MESSAGES: Any = [{"role": "user", "content": "hello"}]
GREEDY: Any = {"temperature": 0}
# The template ends its assistant header with a line feed.
TEXT = simulate_text("\n", TOKENS, ALWAYS_RIGHT)


@pytest.fixture(scope="module")
def client(service: Service, tiny: TinyModels) -> Iterator[anthropic.Anthropic]:
    service.add(
        {
            "id": MODEL,
            "target": {"path": tiny.dense_target.name},
            "context": {"threads": 1, "size": 512},
            "serving": {"aliases": [ALIAS]},
        }
    )
    service.add({"id": "anthropic-lost", "target": {"path": "lost.gguf"}})
    service.start(MODEL)
    with anthropic.Anthropic(
        base_url=service.base_url, api_key="unused", max_retries=0, timeout=DEADLINE_SECONDS
    ) as running:
        yield running
    service.stop(MODEL)


def test_a_message(client: anthropic.Anthropic, service: Service) -> None:
    raw = client.messages.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=TOKENS, extra_body=GREEDY)
    message = raw.parse()
    assert message.content[0].type == "text"
    assert message.content[0].text == TEXT
    assert message.stop_reason == "max_tokens"

    row = service.row_of(raw.headers["x-request-id"])
    cached = message.usage.cache_read_input_tokens or 0
    assert row["prompt_tokens"] == message.usage.input_tokens + cached
    assert (row["cached_tokens"], row["generated_tokens"]) == (cached, TOKENS)
    assert (row["endpoint"], row["outcome"], row["finish_reason"]) == ("messages", "completed", "max_tokens")
    # The engine reports no times in this form.
    assert (row["prompt_seconds"], row["generation_seconds"], row["generation_tokens_per_second"]) == (None,) * 3


def test_a_message_stream_by_an_alias(client: anthropic.Anthropic, service: Service) -> None:
    with client.messages.stream(model=ALIAS, messages=MESSAGES, max_tokens=TOKENS, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == TEXT
        message = stream.get_final_message()
    row = service.row_of(stream.response.headers["x-request-id"])
    cached = message.usage.cache_read_input_tokens or 0
    assert row["prompt_tokens"] == message.usage.input_tokens + cached
    assert (row["stream"], row["outcome"], row["generated_tokens"]) == (True, "completed", TOKENS)
    assert row["time_to_first_token_seconds"] is not None


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    assert client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens > len("hello")


def test_an_unknown_model(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="no-such", messages=MESSAGES, max_tokens=1)
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "not_found_error"
    assert "no-such" in body["error"]["message"]
    assert MODEL in str(caught.value)


def test_a_model_that_cannot_be_placed(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="target-unreadable") as caught:
        client.messages.create(model="anthropic-lost", messages=MESSAGES, max_tokens=1)
    assert caught.value.status_code == 503


def test_a_request_that_the_engine_refuses(client: anthropic.Anthropic, service: Service) -> None:
    """Its error is in a form of its own, which passes as it is."""
    with pytest.raises(anthropic.BadRequestError, match="exceed_context_size_error") as caught:
        client.messages.create(
            model=MODEL, messages=[{"role": "user", "content": "x" * 5000}], max_tokens=1, stream=True
        )
    row = service.row_of(caught.value.response.headers["x-request-id"])
    assert (row["outcome"], row["error"]) == ("upstream_error", "the engine reported exceed_context_size_error (400)")


def test_a_stream_whose_engine_is_stopped(client: anthropic.Anthropic, service: Service, tiny: TinyModels) -> None:
    name = service.add({"id": "anthropic-cut", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
    service.start(name)
    extra: Any = {"ignore_eos": True, "n_predict": 4000}
    with client.messages.create(
        model=name, messages=MESSAGES, max_tokens=4000, stream=True, extra_body=extra
    ) as stream:
        next(iter(stream))
        service.stop(name, drain_seconds=0)
        with pytest.raises(anthropic.APIStatusError, match="the instance was stopped"):
            list(stream)


def test_through_the_path_of_one_engine(client: anthropic.Anthropic, service: Service) -> None:
    behind = client.with_options(base_url=f"{service.base_url}/upstream/{MODEL}")
    message = behind.messages.create(model="anything", messages=MESSAGES, max_tokens=TOKENS)
    assert message.usage.output_tokens == TOKENS
    lost = client.with_options(base_url=f"{service.base_url}/upstream/no-such")
    with pytest.raises(anthropic.NotFoundError, match="no profile answers to"):
        lost.messages.create(model="anything", messages=MESSAGES, max_tokens=1)
