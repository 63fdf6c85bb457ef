"""Streams that are cut, split, commented, ended or swollen in every way, as they pass and as they become one answer."""

import json
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from proxy.chat_events import PIECES, TIMINGS, USAGE, piece
from proxy.event_reading import data_of
from proxy.relay_client import Answered
from proxy.relay_stage import Stage, client_of, stage
from proxy.scripted_engine import DONE_EVENT, LAST_EVENT, STREAM_HEAD, EngineConnection, EngineRequest, event, whole

from app.llama_server.timings import EngineReport
from app.proxy.observer import Outcome, RequestFinished

ASKED = b'{"model":"small","messages":[{"role":"user","content":"hi"}],"max_tokens":4}'
ASKED_AS_STREAM = b'{"model":"small","stream":true}'
STREAM = event("é→") + LAST_EVENT + DONE_EVENT
REPORT = EngineReport(10, 1, 4, 1500, 20250, 6, 5, "stop")
ANSWER_STREAM = b"".join((PIECES[0], piece({"content": "Héllo →"}, timings=TIMINGS), *PIECES[2:]))
ERROR = b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


class Sends:
    """An engine that sends these pieces of a stream, and then ends it or breaks it off; they may be set anew."""

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        self.pieces = pieces
        self.ends = ends

    async def __call__(self, _: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for each in self.pieces:
            await connection.chunk(each)
        if self.ends:
            await connection.chunk(b"")
        else:
            connection.writer.close()


async def asked(now: Stage, body: bytes, path: str = "/v1/chat/completions") -> tuple[Answered, RequestFinished]:
    async with client_of(now) as client:
        answered = await client.ask(body, path=path)
        assert answered.is_whole
        return answered, await now.next_told()


def content(answered: Answered) -> str:
    assert answered.status == 200
    return str(json.loads(answered.body)["choices"][0]["message"]["content"])


# Cut.


async def test_a_stream_may_be_cut_at_any_byte() -> None:
    engine = Sends(ends=False)
    end_mark = len(STREAM) - len(b"\n\n")
    async with stage(engine) as now:
        for place in range(1, len(STREAM) + 1):
            engine.pieces = (STREAM[:place],)
            answered, told = await asked(now, ASKED_AS_STREAM)
            assert answered.status == told.status_code == 200
            passed = STREAM[: STREAM.rfind(b"\n", 0, place) + 1]
            assert answered.body.startswith(passed)
            if place >= end_mark:
                assert (answered.body, told.outcome, told.error) == (STREAM[:place], Outcome.COMPLETED, None)
                continue
            *whole, last = data_of(answered.body)
            assert whole == data_of(passed + b"\n\n"), "no half event, and the error"
            assert json.loads(last)["error"]["message"] == told.error
            assert told.outcome is Outcome.UPSTREAM_FAILED


async def test_a_stream_that_becomes_an_answer_may_be_cut_at_any_byte() -> None:
    engine = Sends(ends=False)
    # Nothing is missing once the usage is there.
    is_enough = len(ANSWER_STREAM) - len(DONE_EVENT)
    async with stage(engine) as now:
        for place in (*range(1, is_enough, 7), *range(is_enough - 9, len(ANSWER_STREAM) + 1)):
            engine.pieces = (ANSWER_STREAM[:place],)
            answered, told = await asked(now, ASKED)
            if place >= is_enough:
                assert content(answered) == "Héllo →lo"
                assert (told.outcome, told.report.generated_tokens) == (Outcome.COMPLETED, 2)
            else:
                assert answered.status == told.status_code == 502
                assert (told.outcome, told.error) == (Outcome.UPSTREAM_FAILED, answered.error)


# Error events.

ANTHROPIC_ERROR = b'event: error\ndata: {"code":500,"message":"no more","type":"server_error"}\n\n'
ERRORS = {
    "/v1/chat/completions": b"data: " + ERROR + b"\n\n",
    "/v1/completions": b"data: " + ERROR + b"\n\n",
    "/v1/responses": b"event: error\ndata: " + ERROR + b"\n\n",
    "/completion": b"data: " + ERROR + b"\n\n",
    "/v1/messages": ANTHROPIC_ERROR,
}


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "cut"])
@pytest.mark.parametrize("before", [b"", b'data: {"some":"thing"}\n\n'])
@pytest.mark.parametrize("path", ERRORS)
async def test_an_error_event_is_the_last_word_whatever_the_end(path: str, before: bytes, ends: bool) -> None:
    stream = before + ERRORS[path]
    async with stage(Sends(stream, ends=ends)) as now:
        answered, told = await asked(now, ASKED_AS_STREAM, path)
        assert (answered.status, answered.body) == (200, stream)
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_ERROR, 200)
        assert told.error == "the engine reported server_error (500)"
        assert now.lent.failed == []


async def test_an_error_event_that_lacks_its_blank_line_is_given_it() -> None:
    async with stage(Sends(event("a"), b"data: " + ERROR, ends=False)) as now:
        answered, told = await asked(now, ASKED_AS_STREAM)
        assert data_of(answered.body)[1:] == [ERROR]
        assert told.outcome is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "cut"])
@pytest.mark.parametrize("before", [0, 2])
async def test_an_error_event_becomes_the_error_answer_whatever_the_end(before: int, ends: bool) -> None:
    async with stage(Sends(*PIECES[:before], b"data: " + ERROR + b"\n\n", ends=ends)) as now:
        answered, told = await asked(now, ASKED)
        assert (answered.status, answered.body) == (500, ERROR)
        assert (told.outcome, told.error) == (Outcome.UPSTREAM_ERROR, "the engine reported server_error (500)")


@pytest.mark.parametrize(
    "odd",
    [b"data: {nonsense\n\n", b"data: \0\n\n", b"data:\n\n", b"data: %b\n\n" % (b"[" * 100_000)],
    ids=["nonsense", "a null", "nothing", "too deep"],
)
async def test_an_event_that_is_none_makes_no_answer_so_the_engine_is_asked_for_one(odd: bytes) -> None:
    sends = Sends(*PIECES[:2], odd[:50_000], odd[50_000:] + PIECES[2])

    async def script(request: EngineRequest, connection: EngineConnection) -> None:
        if json.loads(request.body).get("stream"):
            await sends(request, connection)
        else:
            await connection.write(whole(b'{"choices":[]}'))

    async with stage(script) as now:
        answered, told = await asked(now, ASKED)
        assert (answered.status, answered.body) == (200, b'{"choices":[]}')
        assert (told.outcome, told.error) == (Outcome.COMPLETED, None)


# Comments, line ends, pieces.


def commented(stream: bytes) -> Iterator[bytes]:
    """The stream with a comment before each of its lines in turn, and after the last."""
    lines = stream.splitlines(keepends=True)
    for at in range(len(lines) + 1):
        for comment in (b":\n", b": a comment\n", b":\n\n"):
            if comment == b":\n\n" and at < len(lines) and lines[at] == b"\n":
                continue  # this would end the event early
            yield b"".join((*lines[:at], comment, *lines[at:]))


async def test_comments_may_come_at_any_point() -> None:
    engine = Sends()
    async with stage(engine) as now:
        for stream in commented(STREAM):
            engine.pieces = (stream,)
            answered, told = await asked(now, ASKED_AS_STREAM)
            assert answered.body == stream
            assert (told.outcome, told.report) == (Outcome.COMPLETED, REPORT)
            assert told.time_to_first_token_us is not None


async def test_comments_may_come_at_any_point_of_what_becomes_an_answer() -> None:
    engine = Sends()
    async with stage(engine) as now:
        for stream in commented(ANSWER_STREAM):
            engine.pieces = (stream,)
            answered, told = await asked(now, ASKED)
            assert content(answered) == "Héllo →lo"
            assert (told.outcome, told.report.generated_tokens) == (Outcome.COMPLETED, 2)


async def test_comments_alone_are_no_answer() -> None:
    async with stage(Sends(b":\n\n", b": still here\n\n")) as now:
        answered, told = await asked(now, ASKED)
        assert (answered.status, told.outcome) == (502, Outcome.UPSTREAM_FAILED)
        answered, told = await asked(now, ASKED_AS_STREAM)
        assert answered.body.startswith(b":\n\n: still here\n\ndata: {")
        assert (told.outcome, told.time_to_first_token_us) == (Outcome.UPSTREAM_FAILED, None)


@pytest.mark.parametrize("line_end", LINE_ENDS.values(), ids=LINE_ENDS)
async def test_a_stream_may_come_byte_by_byte_with_any_line_ends(line_end: bytes) -> None:
    stream = STREAM.replace(b"\n", line_end)
    async with stage(Sends(*(stream[at : at + 1] for at in range(len(stream))))) as now:
        answered, told = await asked(now, ASKED_AS_STREAM)
        assert answered.body == stream
        assert (told.outcome, told.report) == (Outcome.COMPLETED, REPORT)


@pytest.mark.parametrize("line_end", LINE_ENDS.values(), ids=LINE_ENDS)
async def test_an_answer_may_come_byte_by_byte_with_any_line_ends(line_end: bytes) -> None:
    stream = ANSWER_STREAM.replace(b"\n", line_end)
    async with stage(Sends(*(stream[at : at + 1] for at in range(len(stream))))) as now:
        answered, told = await asked(now, ASKED)
        assert content(answered) == "Héllo →lo"
        assert (told.outcome, told.report.generated_tokens) == (Outcome.COMPLETED, 2)


async def test_an_answer_may_be_split_at_any_byte() -> None:
    """Within its characters too."""
    engine = Sends()
    begin = ANSWER_STREAM.index("Hé".encode()) - 9
    end = ANSWER_STREAM.index(b"}", begin) + 9
    async with stage(engine) as now:
        for place in range(begin, end):
            engine.pieces = (ANSWER_STREAM[:place], ANSWER_STREAM[place:])
            answered, told = await asked(now, ASKED)
            assert content(answered) == "Héllo →lo"
            assert told.outcome is Outcome.COMPLETED


# Single events of ten megabytes.

LONG = b"x" * 10_000_000
BOUND_BYTES = 4 * 1024 * 1024


def in_pieces(*parts: bytes, size: int = 50_000) -> Iterator[bytes]:
    for part in parts:
        for start in range(0, len(part), size):
            yield part[start : start + size]


class Swollen:
    """An engine that sends a long stream piece by piece."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    async def __call__(self, _: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for each in in_pieces(*self._parts):
            await connection.chunk(each)
        await connection.chunk(b"")


async def measured(now: Stage, body: bytes, path: str) -> tuple[int, int, bytes]:
    """The most memory that a request took, the length of its answer, and the end of that."""
    async with client_of(now) as client:
        tracemalloc.start()
        try:
            await client.post(body, path=path)
            assert (await client.head()).status == 200
            length, end = 0, b""
            while not client.ended:
                part = await client.piece()
                length, end = length + len(part), (end + part[-1000:])[-1000:]
            return tracemalloc.get_traced_memory()[1], length, end
        finally:
            tracemalloc.stop()


async def test_a_long_event_passes_in_little_memory() -> None:
    long = event("").replace(b'""', b'"%b"' % LONG)
    began = time.process_time()
    async with stage(Swollen(long, LAST_EVENT, DONE_EVENT)) as now:
        most_bytes, length, end = await measured(now, ASKED_AS_STREAM, "/v1/chat/completions")
        assert length == len(long + LAST_EVENT + DONE_EVENT)
        assert end.endswith(LAST_EVENT + DONE_EVENT)
        told = await now.next_told()
        assert (told.outcome, told.report) == (Outcome.COMPLETED, REPORT)
        assert most_bytes < BOUND_BYTES
    assert time.process_time() - began < 5


async def test_a_long_event_becomes_an_answer_in_memory_by_its_length() -> None:
    long = piece({"content": LONG.decode()}, timings=TIMINGS)
    began = time.process_time()
    async with stage(Swollen(PIECES[0], long, *PIECES[2:])) as now:
        most_bytes, length, end = await measured(now, ASKED, "/v1/chat/completions")
        assert length > len(LONG)
        assert json.loads(b'{"usage":' + end.rpartition(b'"usage":')[2])["usage"] == USAGE
        told = await now.next_told()
        assert (told.outcome, told.report.generated_tokens) == (Outcome.COMPLETED, 2)
        assert most_bytes < 6 * len(LONG)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("after", [b"", b":\n\n"])
async def test_a_long_last_event_is_read_whole(after: bytes) -> None:
    """llama-server's own form repeats the prompt in it."""
    last = (
        b'data: {"index":0,"content":"","stop":true,"prompt":"%b","stop_type":"eos","tokens_predicted":4,'
        b'"tokens_evaluated":9,"timings":{"cache_n":1,"prompt_n":9,"prompt_ms":1.5,"predicted_n":4}}\n\n' % LONG
    )
    async with stage(Swollen(b'data: {"index":0,"content":"a","stop":false}\n\n', last, after)) as now:
        async with client_of(now) as client:
            await client.post(ASKED_AS_STREAM, path="/completion")
            await client.head()
            assert len(await client.rest()) > len(last)
        told = await now.next_told()
        assert (told.outcome, told.report.prompt_tokens, told.report.generated_tokens) == (Outcome.COMPLETED, 10, 4)
