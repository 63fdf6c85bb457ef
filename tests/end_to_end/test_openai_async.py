"""The official asynchronous OpenAI client: answers, streams, many at once, and leaving in the middle."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from fixtures.speaking_service import WORDS, speaking_service
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, Service

MESSAGES: Any = [{"role": "user", "content": "hello"}]
TEXT = "".join(WORDS)
ENDLESS: Any = {"ignore_eos": True, "n_predict": 4000}


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    with speaking_service(tmp_path_factory.mktemp("speaking"), tiny) as service:
        yield service


@pytest_asyncio.fixture
async def client(speaking: Service) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{speaking.base_url}/v1", api_key="unused", max_retries=0, timeout=DEADLINE_SECONDS
    ) as running:
        yield running


async def row_of(speaking: Service, request_id: str) -> dict[str, Any]:
    return await asyncio.to_thread(speaking.row_of, request_id)


async def test_an_answer_and_its_headers(client: openai.AsyncOpenAI, speaking: Service) -> None:
    raw = await client.chat.completions.with_raw_response.create(model="words", messages=MESSAGES)
    chat = raw.parse()
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == (TEXT, "stop")
    assert raw.headers["x-paceline-profile"] == "words"
    row = await row_of(speaking, raw.headers["x-request-id"])
    assert (row["outcome"], row["generated_tokens"], row["stream"]) == ("completed", len(WORDS) + 1, False)


async def test_the_id_of_the_client_is_the_id_of_the_row(client: openai.AsyncOpenAI, speaking: Service) -> None:
    sent = {"X-Request-Id": "job-17", "X-Paceline-Category": "translation"}
    raw = await client.chat.completions.with_raw_response.create(model="words", messages=MESSAGES, extra_headers=sent)
    assert raw.headers["x-request-id"] == "job-17"
    assert raw.parse()._request_id == "job-17"
    assert (await row_of(speaking, "job-17"))["category"] == "translation"


async def test_a_stream(client: openai.AsyncOpenAI, speaking: Service) -> None:
    stream = await client.chat.completions.create(
        model="words", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    said = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    # One event for each token, as the engine sends them.
    assert said == list(WORDS)
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [len(WORDS) + 1]
    row = await row_of(speaking, stream.response.headers["x-request-id"])
    assert (row["outcome"], row["stream"], row["finish_reason"]) == ("completed", True, "stop")


async def test_a_text_completion_and_a_response(client: openai.AsyncOpenAI) -> None:
    done = await client.completions.create(model="words", prompt="x")
    assert done.choices[0].text == TEXT
    response = await client.responses.create(model="words", input="hello")
    assert response.output_text == TEXT
    events = [event async for event in await client.responses.create(model="words", input="hello", stream=True)]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert {"words", "call", "calls", "json", "endless"} <= {model.id async for model in client.models.list()}
    assert (await client.models.retrieve("words")).id == "words"


async def test_many_at_once(client: openai.AsyncOpenAI, speaking: Service) -> None:
    async def answer() -> tuple[str, str | None]:
        raw = await client.chat.completions.with_raw_response.create(model="words", messages=MESSAGES)
        return raw.headers["x-request-id"], raw.parse().choices[0].message.content

    async def stream() -> tuple[str, str | None]:
        asked = await client.chat.completions.create(model="words", messages=MESSAGES, stream=True)
        said = [choice.delta.content or "" async for chunk in asked for choice in chunk.choices]
        return asked.response.headers["x-request-id"], "".join(said)

    both = await asyncio.gather(*(ask() for ask in (answer, stream) * 12))
    assert {text for _, text in both} == {TEXT}
    rows = await asyncio.gather(*(row_of(speaking, request_id) for request_id, _ in both))
    assert len({row["id"] for row in rows}) == 24
    assert {row["outcome"] for row in rows} == {"completed"}


async def test_leaving_a_stream_ends_the_request(client: openai.AsyncOpenAI, speaking: Service) -> None:
    stream = await client.chat.completions.create(model="endless", messages=MESSAGES, stream=True, extra_body=ENDLESS)
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    await stream.close()
    row = await row_of(speaking, stream.response.headers["x-request-id"])
    assert (row["outcome"], row["finish_reason"]) == ("client_gone", None)
    assert speaking.client.get("/requests", params={"state": "active"}).json()["items"] == []


async def test_a_task_that_is_cancelled_ends_the_request(client: openai.AsyncOpenAI, speaking: Service) -> None:
    sent = {"X-Request-Id": "cancelled-task"}
    await client.chat.completions.create(model="endless", messages=MESSAGES, max_tokens=1)
    asked = asyncio.create_task(
        client.chat.completions.create(model="endless", messages=MESSAGES, extra_body=ENDLESS, extra_headers=sent)
    )

    def active() -> list[Any]:
        items: list[Any] = speaking.client.get("/requests", params={"state": "active"}).json()["items"]
        return items

    while not await asyncio.to_thread(active):
        assert not asked.done()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await row_of(speaking, "cancelled-task"))["outcome"] == "client_gone"
