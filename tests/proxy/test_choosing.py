"""By name or by `auto`: where a request goes, and what is told of it."""

import json
from typing import Any

import pytest
from proxy.relay_stage import client_of, stage
from proxy.scripted_engine import DONE_EVENT, LAST_EVENT, STREAM_HEAD, EngineConnection, EngineRequest, event

from app.errors import NoProfileFits
from app.proxy.auto import Candidate, Purpose
from app.proxy.caller import ANYONE, Caller
from app.proxy.categories import Category
from app.proxy.choosing import choose, wanted_by
from app.proxy.endpoints import Endpoint
from app.proxy.request_body import RequestBody

NAMES = {"a": "a", "b": "b", "org/b": "b"}


def candidates(ids: Any) -> list[Candidate]:
    return [Candidate(each, is_ready=each == "b") for each in sorted(ids)]


def chosen(model: str | None, names: dict[str, str] = NAMES, caller: Caller = ANYONE) -> Any:
    return choose(
        model, names, caller, candidates, lambda: wanted_by(Endpoint.CHAT_COMPLETIONS, "code", RequestBody(b"{}"))
    )


def test_a_name_is_taken_as_it_is() -> None:
    assert (chosen("org/b").profile_id, chosen("org/b").reason, chosen("org/b").is_auto) == ("b", "alias", False)


def test_auto_chooses_among_those_that_the_caller_may_use() -> None:
    assert (chosen("auto").profile_id, chosen("auto").is_auto) == ("b", True)
    assert chosen("auto", caller=Caller("key", frozenset({"a"}))).profile_id == "a"
    with pytest.raises(NoProfileFits):
        chosen("auto", caller=Caller("key", frozenset({"gone"})))


def test_a_profile_of_that_name_comes_first() -> None:
    assert chosen("auto", {**NAMES, "auto": "a"}).reason == "alias"


def test_what_a_request_needs() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 3000}], "max_tokens": 500}).encode()
    wanted = wanted_by(Endpoint.CHAT_COMPLETIONS, "code", RequestBody(body))
    assert wanted.category is Category.CODE
    assert 1500 <= wanted.tokens <= 1550
    assert not wanted.has_images
    picture = (
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"' + b"A" * 10**6 + b'"}}]}]}'
    )
    assert wanted_by(Endpoint.MESSAGES, None, RequestBody(picture)).has_images
    assert wanted_by(Endpoint.MESSAGES, None, RequestBody(picture)).tokens < 2000
    spoken = picture.replace(b"image_url", b"input_audio") + b" " + b"long text " * 3000
    assert wanted_by(Endpoint.MESSAGES, None, RequestBody(spoken)).has_sound
    assert wanted_by(Endpoint.MESSAGES, None, RequestBody(spoken)).tokens > 10_000
    asked = RequestBody(b'{"input":"x","max_output_tokens":100000}')
    assert wanted_by(Endpoint.RESPONSES, None, asked).tokens > 100_000
    assert wanted_by(Endpoint.EMBEDDINGS, None, RequestBody(b'{"input":"x"}')).purpose is Purpose.EMBEDDINGS
    assert wanted_by(Endpoint.INFILL, None, RequestBody(b"no json")).tokens == 2


async def test_the_decision_is_in_a_header_and_in_the_row() -> None:
    async def answer(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(event("x") + LAST_EVENT + DONE_EVENT)
        await connection.chunk(b"")

    async with stage(answer) as now, client_of(now) as client:
        await client.post(b'{"model":"auto","stream":true}')
        received = await client.head()
        await client.rest()
        assert received.one("x-paceline-profile") == "small"
        assert received.one("x-paceline-route") == "auto: the only one, of those loaded"
        told = await now.next_told()
        assert (told.profile_id, told.requested_model) == ("small", "auto")
        assert told.route_reason == "auto: the only one, of those loaded"
