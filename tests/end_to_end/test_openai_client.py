"""The official OpenAI client against the service: what it sends is understood, what it gets it can parse."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from fixtures.draft_simulation import simulate_draft, simulate_text
from fixtures.tiny_models import ALWAYS_RIGHT, WRONG_AFTER_D, TinyModels
from service import DEADLINE_SECONDS, Service

MODEL = "tiny-chat"
TOKENS = 16
MESSAGES: Any = [{"role": "system", "content": "You count."}, {"role": "user", "content": "hello"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}
# The template ends its assistant header with a line feed.
LAST_OF_PROMPT = "\n"


@pytest.fixture(scope="module")
def client(service: Service, tiny: TinyModels) -> Iterator[openai.OpenAI]:
    """A client of a service on which one profile runs and another does not."""
    service.add(
        {
            "id": MODEL,
            "target": {"path": tiny.dense_target.name},
            "speculation": {"method": "draft", "draft": {"path": tiny.wrong_draft.name}, "draft_tokens_max": 3},
            "context": {"threads": 1},
            "serving": {"aliases": ["org/Tiny Chat:latest"]},
        }
    )
    service.add({"id": "asleep", "target": {"path": tiny.dense_target.name}})
    service.add({"id": "lost", "target": {"path": "lost.gguf"}})
    service.start(MODEL)
    with openai.OpenAI(
        base_url=f"{service.base_url}/v1", api_key="unused", max_retries=0, timeout=DEADLINE_SECONDS
    ) as running:
        yield running
    service.stop(MODEL)


def test_a_chat(client: openai.OpenAI, service: Service) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=TOKENS, temperature=0
    )
    chat = raw.parse()
    (choice,) = chat.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == simulate_text(LAST_OF_PROMPT, TOKENS, ALWAYS_RIGHT)
    assert choice.finish_reason == "length"
    assert chat.usage is not None
    assert chat.usage.completion_tokens == TOKENS
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + TOKENS

    row = service.row_of(raw.headers["x-request-id"])
    expected = simulate_draft("draft-simple", LAST_OF_PROMPT, TOKENS, WRONG_AFTER_D, 3)
    assert (row["draft_tokens"], row["accepted_tokens"]) == tuple(expected)
    assert (row["endpoint"], row["stream"], row["finish_reason"]) == ("chat_completions", False, "length")
    assert (row["prompt_tokens"], row["generated_tokens"]) == (chat.usage.prompt_tokens, TOKENS)


@pytest.mark.parametrize("with_usage", [False, True])
def test_a_chat_stream(client: openai.OpenAI, service: Service, with_usage: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if with_usage else {}
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=TOKENS, temperature=0, stream=True, **options
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == simulate_text(LAST_OF_PROMPT, TOKENS, ALWAYS_RIGHT)
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["length"]
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert [usage.completion_tokens for usage in usages] == ([TOKENS] if with_usage else [])

    row = service.row_of(stream.response.headers["x-request-id"])
    expected = simulate_draft("draft-simple", LAST_OF_PROMPT, TOKENS, WRONG_AFTER_D, 3)
    assert (row["draft_tokens"], row["accepted_tokens"]) == tuple(expected)
    assert (row["outcome"], row["stream"], row["generated_tokens"]) == ("completed", True, TOKENS)
    assert row["time_to_first_token_seconds"] is not None


def test_a_text_completion_by_an_alias(client: openai.OpenAI) -> None:
    done = client.completions.create(model="org/Tiny Chat:latest", prompt="abc", max_tokens=4, temperature=0)
    assert done.choices[0].text == "defg"


def test_a_chat_with_tools(client: openai.OpenAI) -> None:
    # A model of random weights calls no tool of its own will.
    chat = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=[WEATHER], tool_choice="auto", max_tokens=TOKENS, temperature=0
    )
    assert chat.choices[0].message.content
    assert not chat.choices[0].message.tool_calls


def test_a_chat_stream_with_tools(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, tools=[WEATHER], max_tokens=TOKENS) as stream:
        kinds = {event.type for event in stream}
        with pytest.raises(openai.LengthFinishReasonError):
            stream.get_final_completion()
    assert {"chunk", "content.delta"} <= kinds


def test_a_response(client: openai.OpenAI, service: Service) -> None:
    raw = client.responses.with_raw_response.create(model=MODEL, input="hello", max_output_tokens=TOKENS, temperature=0)
    response = raw.parse()
    assert response.output_text == simulate_text(LAST_OF_PROMPT, TOKENS, ALWAYS_RIGHT)
    assert response.usage is not None
    row = service.row_of(raw.headers["x-request-id"])
    assert (row["endpoint"], row["outcome"], row["stream"]) == ("responses", "completed", False)
    assert (row["prompt_tokens"], row["generated_tokens"]) == (response.usage.input_tokens, TOKENS)
    # In one piece the engine reports neither times nor drafts.
    assert (row["generation_seconds"], row["draft_tokens"]) == (None, None)


def test_a_response_stream(client: openai.OpenAI, service: Service) -> None:
    stream = client.responses.create(
        model=MODEL,
        input="hello",
        max_output_tokens=TOKENS,
        temperature=0,
        stream=True,
        extra_body={"cache_prompt": False},
    )
    events = list(stream)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == simulate_text(
        LAST_OF_PROMPT, TOKENS, ALWAYS_RIGHT
    )
    assert events[-1].type == "response.completed"
    row = service.row_of(stream.response.headers["x-request-id"])
    expected = simulate_draft("draft-simple", LAST_OF_PROMPT, TOKENS, WRONG_AFTER_D, 3)
    assert (row["draft_tokens"], row["accepted_tokens"]) == tuple(expected)
    assert (row["outcome"], row["stream"], row["generated_tokens"]) == ("completed", True, TOKENS)
    assert row["generation_seconds"] is not None


def test_embeddings(client: openai.OpenAI, service: Service, tiny: TinyModels) -> None:
    extra = ["--embeddings", "--pooling", "mean"]
    name = service.add(
        {"id": "vectors", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}, "extra_args": extra}
    )
    found = client.embeddings.create(model=name, input=["hello", "hello abc"])
    assert [len(item.embedding) for item in found.data] == [32, 32]
    assert found.usage.prompt_tokens == len("hello") + len("hello abc")
    service.stop(name)


def test_one_model(client: openai.OpenAI) -> None:
    assert client.models.retrieve("org/Tiny Chat:latest").id == "org/Tiny Chat:latest"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no/such")


def test_an_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such", messages=MESSAGES)
    assert caught.value.code == "model_unknown"
    assert caught.value.param == "model"
    for name in (MODEL, "asleep", "org/Tiny Chat:latest"):
        assert name in caught.value.message


def test_a_model_that_does_not_run_yet(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="asleep", messages=MESSAGES, max_tokens=TOKENS)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == TOKENS


def test_a_model_that_cannot_be_placed(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="lost", messages=MESSAGES)
    assert caught.value.status_code == 503
    assert caught.value.code == "launch_refused"
    assert "target-unreadable" in caught.value.message
    # Asked again it would be refused again.
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_a_request_that_the_engine_refuses(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=-5)
    assert "max_tokens" in caught.value.message


def test_the_list_of_models(client: openai.OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert {MODEL, "org/Tiny Chat:latest", "asleep"} <= listed.keys()
    assert {model.object for model in listed.values()} == {"model"}
    assert all(model.created > 0 for model in listed.values())
