"""The official OpenAI client with tools and structured output: in one piece, streamed, and through its own helpers."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from fixtures.speaking_service import TOWN, WORDS, speaking_service
from fixtures.tiny_models import TinyModels
from openai.lib.streaming.chat import ChatCompletionStream
from pydantic import BaseModel
from service import DEADLINE_SECONDS, Service

MESSAGES: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": TOWN}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]
WEATHER: Any = {"type": "function", "function": {"name": "weather"}}


class Town(BaseModel):
    town: str


class Verdict(BaseModel):
    verdict: Literal["yes"]


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    with speaking_service(tmp_path_factory.mktemp("speaking"), tiny) as service:
        yield service


@pytest.fixture(scope="module")
def client(speaking: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{speaking.base_url}/v1", api_key="unused", max_retries=0, timeout=DEADLINE_SECONDS
    ) as running:
        yield running


def towns(calls: Any) -> list[str]:
    assert {call.function.name for call in calls} == {"weather"}
    assert len({call.id for call in calls} - {None, ""}) == len(calls)
    return [json.loads(call.function.arguments)["town"] for call in calls]


@pytest.mark.parametrize("tool_choice", ["auto", "required", WEATHER], ids=str)
def test_a_call(client: openai.OpenAI, tool_choice: Any) -> None:
    chat = client.chat.completions.create(model="call", messages=MESSAGES, tools=TOOLS, tool_choice=tool_choice)
    (choice,) = chat.choices
    assert choice.finish_reason == "tool_calls"
    assert towns(choice.message.tool_calls) == ["Rome"]


def test_a_choice_of_no_tool(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(model="call", messages=MESSAGES, tools=TOOLS, tool_choice="none")
    assert chat.choices[0].finish_reason == "stop"
    assert not chat.choices[0].message.tool_calls
    assert "weather" in (chat.choices[0].message.content or "")


def test_parallel_calls_and_their_results(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(model="calls", messages=MESSAGES, tools=TOOLS, parallel_tool_calls=True)
    message = chat.choices[0].message
    assert towns(message.tool_calls) == ["Rome", "Oslo"]
    results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in message.tool_calls or ()]
    turns: Any = [*MESSAGES, message, *results]
    answered = client.chat.completions.create(model="words", messages=turns, tools=TOOLS)
    assert answered.choices[0].message.content == "".join(WORDS)


def test_calls_in_a_stream(client: openai.OpenAI, speaking: Service) -> None:
    stream = client.chat.completions.create(model="calls", messages=MESSAGES, tools=TOOLS, stream=True)
    arguments: dict[int, str] = {}
    names: dict[int, str] = {}
    reasons = []
    for chunk in stream:
        for choice in chunk.choices:
            reasons.append(choice.finish_reason)
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                names[call.index] = names.get(call.index, "") + (call.function.name or "")
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert names == {0: "weather", 1: "weather"}
    assert [json.loads(arguments[index])["town"] for index in (0, 1)] == ["Rome", "Oslo"]
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert speaking.row_of(stream.response.headers["x-request-id"])["finish_reason"] == "tool_calls"


def test_the_helper_for_streams_gathers_calls(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="call", messages=MESSAGES, tools=[_strict(TOOLS[0])]) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.parsed_arguments for event in done] == [{"town": "Rome"}]
    assert towns(final.choices[0].message.tool_calls) == ["Rome"]


def test_a_tool_made_of_a_model_of_pydantic(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Town, name="weather")
    chat = client.chat.completions.parse(model="call", messages=MESSAGES, tools=[tool], tool_choice="required")
    (call,) = chat.choices[0].message.tool_calls or ()
    assert call.function.parsed_arguments == Town(town="Rome")


def test_a_call_through_responses(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": TOWN, "strict": False}
    response = client.responses.create(model="call", input="hello", tools=[tool])
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"town": "Rome"})
    # The engine sends no `function_call_arguments.done`; the end of the item has them too.
    stream = client.responses.create(model="call", input="hello", tools=[tool], stream=True)
    done = [event.item for event in stream if event.type == "response.output_item.done"]
    assert [json.loads(item.arguments) for item in done if item.type == "function_call"] == [{"town": "Rome"}]


@pytest.mark.parametrize("model", ["json", "words"])
def test_a_schema_that_the_answer_follows(client: openai.OpenAI, model: str) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": _schema()}}
    chat = client.chat.completions.create(
        model=model, messages=MESSAGES, response_format=wanted, max_tokens=100, temperature=0
    )
    # Neither model would ever say this by itself.
    assert json.loads(chat.choices[0].message.content or "") == {"verdict": "yes"}
    assert chat.choices[0].finish_reason == "stop"


def test_an_answer_as_a_model_of_pydantic(client: openai.OpenAI) -> None:
    chat = client.chat.completions.parse(model="json", messages=MESSAGES, response_format=Town)
    assert chat.choices[0].message.parsed == Town(town="Rome")
    forced = client.chat.completions.parse(
        model="words", messages=MESSAGES, response_format=Verdict, max_tokens=100, temperature=0
    )
    assert forced.choices[0].message.parsed == Verdict(verdict="yes")
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="words", messages=MESSAGES, response_format=Verdict, max_tokens=3)


@pytest.mark.parametrize("stream_of", ["chat", "beta.chat"])
def test_the_helper_for_streams_parses(client: openai.OpenAI, stream_of: str) -> None:
    completions = client.chat.completions if stream_of == "chat" else client.beta.chat.completions
    with completions.stream(model="json", messages=MESSAGES, response_format=Town) as stream:
        assert isinstance(stream, ChatCompletionStream)
        done = [event for event in stream if event.type == "content.done"]
        final = stream.get_final_completion()
    assert [event.parsed for event in done] == [Town(town="Rome")]
    assert final.choices[0].message.parsed == Town(town="Rome")


def test_a_response_as_a_model_of_pydantic(client: openai.OpenAI) -> None:
    assert client.responses.parse(model="json", input="hello", text_format=Town).output_parsed == Town(town="Rome")
    # The engine passes over `text.format`, and takes the field of chats here too.
    wanted = {"response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "schema": _schema()}}}
    forced = client.responses.parse(
        model="words", input="hello", text_format=Verdict, max_output_tokens=100, temperature=0, extra_body=wanted
    )
    assert forced.output_parsed == Verdict(verdict="yes")


def _schema() -> dict[str, Any]:
    return {**Verdict.model_json_schema(), "additionalProperties": False}


def _strict(tool: Any) -> Any:
    return {**tool, "function": {**tool["function"], "strict": True}}
