"""The official Anthropic client with tools, in one piece and streamed, and asynchronously."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from fixtures.speaking_service import TOWN, WORDS, speaking_service
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, Service

MESSAGES: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [
    {"name": "weather", "description": "The weather.", "input_schema": TOWN},
    {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
]
TEXT = "".join(WORDS)
TOKENS = 500
# Of the engine's own parameters only a few have an effect here; this one does.
ENDLESS: Any = {"n_predict": 4000}


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    with speaking_service(tmp_path_factory.mktemp("speaking"), tiny) as service:
        yield service


@pytest.fixture(scope="module")
def client(speaking: Service) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=speaking.base_url, api_key="unused", max_retries=0, timeout=DEADLINE_SECONDS
    ) as running:
        yield running


@pytest_asyncio.fixture
async def later(speaking: Service) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The asynchronous one."""
    async with anthropic.AsyncAnthropic(
        base_url=speaking.base_url, api_key="unused", max_retries=0, timeout=DEADLINE_SECONDS
    ) as running:
        yield running


async def row_of(speaking: Service, request_id: str) -> dict[str, Any]:
    return await asyncio.to_thread(speaking.row_of, request_id)


def uses(message: anthropic.types.Message) -> list[tuple[str, object]]:
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "weather"}], ids=str)
def test_a_tool_is_used(client: anthropic.Anthropic, choice: Any) -> None:
    message = client.messages.create(
        model="call", messages=MESSAGES, max_tokens=TOKENS, tools=TOOLS, tool_choice=choice
    )
    assert message.stop_reason == "tool_use"
    assert uses(message) == [("weather", {"town": "Rome"})]


def test_two_uses_and_their_results(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model="calls", messages=MESSAGES, max_tokens=TOKENS, tools=TOOLS)
    assert uses(message) == [("weather", {"town": "Rome"}), ("weather", {"town": "Oslo"})]
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "sun"}
        for block in message.content
        if block.type == "tool_use"
    ]
    turns: Any = [*MESSAGES, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    answered = client.messages.create(model="words", messages=turns, max_tokens=TOKENS, tools=TOOLS)
    assert [block.text for block in answered.content if block.type == "text"] == [TEXT]


def test_uses_in_a_stream(client: anthropic.Anthropic, speaking: Service) -> None:
    with client.messages.stream(model="calls", messages=MESSAGES, max_tokens=TOKENS, tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_message()
    assert {"input_json", "content_block_stop", "message_stop"} <= kinds
    assert uses(message) == [("weather", {"town": "Rome"}), ("weather", {"town": "Oslo"})]
    assert stream.request_id is not None
    assert speaking.row_of(stream.request_id)["finish_reason"] == "tool_use"


async def test_an_answer_and_its_headers(later: anthropic.AsyncAnthropic, speaking: Service) -> None:
    sent = {"X-Request-Id": "message-17", "X-Paceline-Category": "code"}
    raw = await later.messages.with_raw_response.create(
        model="words", messages=MESSAGES, max_tokens=TOKENS, extra_headers=sent
    )
    message = await raw.parse()
    assert raw.headers["x-request-id"] == message._request_id == "message-17"
    assert [block.text for block in message.content if block.type == "text"] == [TEXT]
    row = await row_of(speaking, "message-17")
    assert (row["category"], row["finish_reason"], row["outcome"]) == ("code", "end_turn", "completed")


async def test_many_at_once(later: anthropic.AsyncAnthropic, speaking: Service) -> None:
    async def answer() -> str:
        message = await later.messages.create(model="words", messages=MESSAGES, max_tokens=TOKENS)
        return "".join(block.text for block in message.content if block.type == "text")

    async def stream() -> str:
        async with later.messages.stream(model="words", messages=MESSAGES, max_tokens=TOKENS) as asked:
            return "".join([text async for text in asked.text_stream])

    assert set(await asyncio.gather(*(ask() for ask in (answer, stream) * 12))) == {TEXT}


async def test_leaving_a_stream_ends_the_request(later: anthropic.AsyncAnthropic, speaking: Service) -> None:
    async with later.messages.stream(model="endless", messages=MESSAGES, max_tokens=4000, extra_body=ENDLESS) as asked:
        async for _ in asked.text_stream:
            break
    row = await row_of(speaking, str(asked.request_id))
    assert (row["outcome"], row["finish_reason"]) == ("client_gone", None)


async def test_tokens_and_models(later: anthropic.AsyncAnthropic) -> None:
    counted = await later.messages.count_tokens(model="words", messages=MESSAGES, tools=TOOLS)
    bare = await later.messages.count_tokens(model="words", messages=MESSAGES)
    assert counted.input_tokens > bare.input_tokens > 0
    assert "words" in {model.id async for model in later.models.list()}
