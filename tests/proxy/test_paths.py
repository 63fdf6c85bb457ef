"""The endpoints beside chat and text completions: what passes, what is recorded, how their clients hear of errors."""

import json

import pytest
from msgspec import structs
from proxy.relay_stage import client_of, stage
from proxy.scripted_engine import STREAM_HEAD, EngineConnection, EngineRequest, Script, whole

from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome

USAGE = b'"usage":{"input_tokens":59,"output_tokens":6,"input_tokens_details":{"cached_tokens":58}}'
TIMINGS = b'"timings":{"cache_n":58,"prompt_n":1,"prompt_ms":0.204,"predicted_n":6,"predicted_ms":0.624}'
TIMED = EngineReport(59, 58, 6, 204, 624)
RESPONSE_EVENTS = (
    b'event: response.created\ndata: {"type":"response.created","response":{"status":"in_progress"}}\n\n',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed",%b},%b}\n\n'
    % (USAGE, TIMINGS),
)
MESSAGE_EVENTS = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"cache_read_input_tokens":58,'
    b'"input_tokens":1,"output_tokens":0}}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
    b'"usage":{"output_tokens":6}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
)
NATIVE_EVENTS = (
    b'data: {"index":0,"content":"","stop":false,"prompt_progress":{"total":59}}\n\n',
    b'data: {"index":0,"content":"d","stop":false,"tokens_predicted":1}\n\n',
    b'data: {"index":0,"content":"","stop":true,"stop_type":"eos","prompt":"%b",%b}\n\n' % (b"x" * 600_000, TIMINGS),
)
STREAMS = [
    ("/v1/responses", RESPONSE_EVENTS, structs.replace(TIMED, finish_reason="completed"), Endpoint.RESPONSES),
    ("/v1/messages", MESSAGE_EVENTS, EngineReport(59, 58, 6, finish_reason="end_turn"), Endpoint.MESSAGES),
    ("/completion", NATIVE_EVENTS, structs.replace(TIMED, finish_reason="eos"), Endpoint.COMPLETION),
    ("/infill", NATIVE_EVENTS, structs.replace(TIMED, finish_reason="eos"), Endpoint.INFILL),
]
STREAM_BODY = b'{"model":"org/small","stream":true}'


def streaming(*chunks: bytes, end: bool = True) -> Script:
    async def script(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for chunk in chunks:
            await connection.chunk(chunk)
        if end:
            await connection.chunk(b"")
        else:
            connection.cut()

    return script


def answering(body: bytes, *, status: bytes = b"200 OK", more: bytes = b"") -> Script:
    async def script(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(whole(body, status=status, more=more))

    return script


@pytest.mark.parametrize(("path", "events", "report", "endpoint"), STREAMS)
async def test_a_stream_of_each_form(
    path: str, events: tuple[bytes, ...], report: EngineReport, endpoint: Endpoint
) -> None:
    async with stage(streaming(*events)) as now, client_of(now) as client:
        await client.post(STREAM_BODY, path=path)
        assert (await client.head()).status == 200
        assert await client.rest() == b"".join(events)
        told = await now.next_told()
        assert (told.outcome, told.error, told.endpoint, told.stream) == (Outcome.COMPLETED, None, endpoint, True)
        assert told.report == report
        assert told.time_to_first_token_us is not None
        assert now.engine.requests[0].line == f"POST {path} HTTP/1.1".encode()
        assert now.engine.requests[0].body == STREAM_BODY


@pytest.mark.parametrize(("path", "events", "report", "endpoint"), STREAMS)
async def test_the_first_token_of_each_form(
    path: str, events: tuple[bytes, ...], report: EngineReport, endpoint: Endpoint
) -> None:
    async with stage(streaming(events[0])) as now, client_of(now) as client:
        await client.post(STREAM_BODY, path=path)
        await client.head()
        await client.rest()
        assert (await now.next_told()).time_to_first_token_us is None, "nothing was put out yet"


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize(("path", "events", "report", "endpoint"), STREAMS)
async def test_a_stream_of_each_form_that_is_cut(
    path: str, events: tuple[bytes, ...], report: EngineReport, endpoint: Endpoint, end: bool
) -> None:
    async with stage(streaming(*events[:2], end=end)) as now, client_of(now) as client:
        await client.post(STREAM_BODY, path=path)
        await client.head()
        added = (await client.rest()).removeprefix(b"".join(events[:2]))
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_FAILED, 200)
        # Of these forms only the native one says with every event how far it is.
        assert told.report.generated_tokens == (1 if events is NATIVE_EVENTS else None)
        *names, data = added.strip().split(b"\n")
        assert names == ([b"event: error"] if endpoint is Endpoint.MESSAGES else [])
        error = json.loads(data.removeprefix(b"data: "))
        assert error["error"]["message"] == told.error
        assert error.get("type") == ("error" if endpoint is Endpoint.MESSAGES else None)


async def test_an_error_of_the_engine_in_a_message_stream() -> None:
    error = b'event: error\ndata: {"code":500,"message":"Context size has been exceeded.","type":"server_error"}\n\n'
    async with stage(streaming(MESSAGE_EVENTS[0], error)) as now, client_of(now) as client:
        await client.post(STREAM_BODY, path="/v1/messages")
        await client.head()
        assert await client.rest() == MESSAGE_EVENTS[0] + error
        told = await now.next_told()
        assert (told.outcome, told.error) == (Outcome.UPSTREAM_ERROR, "the engine reported server_error (500)")


@pytest.mark.parametrize(
    ("path", "body", "report", "endpoint"),
    [
        ("/v1/responses", b'{"status":"completed",%b}' % USAGE, EngineReport(59, 58, 6, finish_reason="completed"),
         Endpoint.RESPONSES),
        ("/v1/embeddings", b'{"usage":{"prompt_tokens":5},"data":[%b0]}' % (b"0.123456789," * 100_000),
         EngineReport(prompt_tokens=5), Endpoint.EMBEDDINGS),
        ("/rerank", b'{"usage":{"prompt_tokens":6},"results":[]}', EngineReport(prompt_tokens=6), Endpoint.RERANK),
        ("/completion", b'{"stop":true,"stop_type":"limit",%b}' % TIMINGS,
         structs.replace(TIMED, finish_reason="limit"),
         Endpoint.COMPLETION),
        ("/v1/messages/count_tokens", b'{"input_tokens":59}', EngineReport(), Endpoint.COUNT_TOKENS),
        ("/tokenize", b'{"tokens":[1]}', EngineReport(), Endpoint.TOKENIZE),
    ],
)  # fmt: skip
async def test_an_answer_in_one_piece_of_each_form(
    path: str, body: bytes, report: EngineReport, endpoint: Endpoint
) -> None:
    async with stage(answering(body)) as now, client_of(now) as client:
        await client.post(
            b'{"model":"small","stream":true}' if report == EngineReport() else b"{}", path=path + "?model=small"
        )
        assert (await client.head()).status == 200
        assert await client.rest() == body
        told = await now.next_told()
        assert (told.outcome, told.report, told.endpoint) == (Outcome.COMPLETED, report, endpoint)
        assert told.stream is False
        assert now.engine.requests[0].line == f"POST {path}?model=small HTTP/1.1".encode()


@pytest.mark.parametrize("path", ["/props", "/slots", "/lora-adapters"])
async def test_a_question_names_its_model_in_the_query(path: str) -> None:
    async with stage(answering(b"[]")) as now, client_of(now) as client:
        await client.send(f"GET {path}?model=org%2Fsmall HTTP/1.1\r\nHost: relay\r\n\r\n".encode())
        assert (await client.head()).one("x-paceline-profile") == "small"
        assert await client.rest() == b"[]"
        told = await now.next_told()
        assert (told.requested_model, told.route_reason) == ("org/small", "alias")
        assert told.endpoint.value == path[1:].replace("-", "_")
        assert now.engine.requests[0].line == f"GET {path}?model=org%2Fsmall HTTP/1.1".encode()


async def test_a_body_that_names_no_model_may_be_any_json() -> None:
    async with stage(answering(b'{"success":true}')) as now, client_of(now) as client:
        await client.post(b'[{"id":0,"scale":0.5}]', path="/lora-adapters?model=small")
        assert (await client.head()).status == 200
        await client.rest()
        assert now.engine.requests[0].body == b'[{"id":0,"scale":0.5}]'
        assert (await now.next_told()).outcome == Outcome.COMPLETED


async def test_one_model_by_a_name_with_slashes() -> None:
    async with stage(answering(b"{}")) as now, client_of(now) as client:
        for target, status in (("small", 200), ("auto", 200), ("no%2Fsuch", 404)):
            await client.send(f"GET /v1/models/{target} HTTP/1.1\r\nHost: relay\r\n\r\n".encode())
            assert (await client.head()).status == status
            body = json.loads(await client.rest())
            assert body.get("id") == (target if status == 200 else None)
    assert "no/such" in body["error"]["message"]
