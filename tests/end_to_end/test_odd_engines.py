"""An engine that is healthy and answers badly: every client hears of it, every row is written, and it serves on."""

import json
import logging
from typing import Any

import httpx
import pytest
from fixtures.faulty_engine import Faults
from service import Service, completion, events

LOADING = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
OK = "HTTP/1.1 200 OK\r\n"
STREAM_HEAD = OK + "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MEMBERS = '"created":1,"id":"x","model":"m","system_fingerprint":"b1","object":"text_completion"'
EVENT = f'data: {{"choices":[{{"text":"a","index":0,"logprobs":null,"finish_reason":null}}],{MEMBERS}}}\n\n'
LAST_EVENT = (
    f'data: {{"choices":[{{"text":"","index":0,"logprobs":null,"finish_reason":"stop"}}],{MEMBERS},'
    '"usage":{"completion_tokens":2},"timings":{"prompt_n":3,"predicted_n":2}}\n\n'
)
DONE = "data: [DONE]\n\n"
ERROR_EVENT = 'data: {"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}\n\n'


def chunk(text: str, extension: str = "") -> str:
    return f"{len(text):X}{extension}\r\n{text}\r\n"


def stream_of(*texts: str, ends: bool = True) -> str:
    return STREAM_HEAD + "".join(map(chunk, texts)) + ("0\r\n\r\n" if ends else "")


def rows_of(service: Service, profile: str) -> list[dict[str, Any]]:
    """All that was recorded of a profile, oldest first."""
    answer = service.client.get("/requests", params={"profile": profile, "limit": 500})
    rows: list[dict[str, Any]] = answer.json()["items"]
    return rows[::-1]


def sent(service: Service, profile: str, *, stream: bool) -> tuple[httpx.Response, str | None]:
    """An answer and its text; None where it was cut."""
    body = completion(profile, stream=stream)
    with service.client.stream("POST", "/v1/completions", json=body) as answer:
        try:
            return answer, answer.read().decode()
        except httpx.RemoteProtocolError:
            return answer, None


Result = tuple[int | None, str]
FINE: Result = (200, "completed")
FAILED: Result = (502, "upstream_failed")
BROKEN_OFF: Result = (200, "upstream_failed")
CUT: Result = (None, "upstream_failed")
# What the engine sends, whether it closes, and what becomes of it: for a client that asks for a stream, and for one
# that asks for an answer in one piece.
ODD: dict[str, tuple[str, bool, Result, Result]] = {
    "nothing": ("", True, FAILED, FAILED),
    "no HTTP": ("SSH-2.0-OpenSSH\r\n\r\n", False, FAILED, FAILED),
    "NUL bytes": ("\0" * 50, False, FAILED, FAILED),
    "status 999": ("HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", False, FAILED, FAILED),
    "folded": (OK + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n", False, FAILED, FAILED),
    "long headers": (OK + f"X: {'y' * 400_000}\r\n\r\n", False, FAILED, FAILED),
    "no content": ("HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", False, (204, "completed"), (204, "completed")),
    "short": (OK + "Content-Length: 20\r\n\r\n{}", True, CUT, CUT),
    "long": (OK + "Content-Length: 2\r\n\r\n{}garbage", False, FINE, FINE),
    "interim": ("HTTP/1.1 100 Go\r\n\r\n" + OK + "cOnTeNt-LeNgTh:  2 \r\n\r\n{}", False, FINE, FINE),
    "HTTP/1.0": ("HTTP/1.0 200 OK\r\n\r\n{}", True, FINE, FINE),
    "trailers": (
        OK + "Transfer-Encoding: chunked\r\n\r\n" + chunk("{}", ';a="b"') + "0;c\r\nX-Trailer: 1\r\n\r\n",
        False, FINE, FINE,
    ),
    "an error event, cut": (
        stream_of(EVENT, ERROR_EVENT, ends=False), True, (200, "upstream_error"), (500, "upstream_error"),
    ),
    "comments": (stream_of(": a\n\n", EVENT, ":\n\n", LAST_EVENT, ":\n", DONE, ":\n\n"), False, FINE, FINE),
    "CRLF": (stream_of((EVENT + LAST_EVENT + DONE).replace("\n", "\r\n")), False, FINE, FINE),
    "cut after all was there": (stream_of(EVENT, LAST_EVENT, DONE, ends=False), True, FINE, FINE),
    "cut within a chunk": (stream_of(EVENT, EVENT, ends=False)[:-9], True, BROKEN_OFF, FAILED),
    "a bad chunk": (stream_of(EVENT, ends=False) + "zz\r\n", False, BROKEN_OFF, FAILED),
    "a known length": (
        OK + f"Content-Type: text/event-stream\r\nContent-Length: {len(EVENT)}\r\n\r\n{EVENT}",
        False, BROKEN_OFF, FAILED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_it_serves_on_and_every_request_has_one_row(
    faults: Faults, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    raw: list[dict[str, Any] | None] = []
    for data, closes, _, _ in ODD.values():
        raw += [{"bytes": data, "closes": closes}, None]
    service = faults.service
    profile = faults.profile(f"odd-{stream}".lower(), {"raw_answers": raw})
    instance = service.start(profile)
    expected: list[Result] = []
    with caplog.at_level(logging.WARNING):
        for name, (_, _, streamed, whole) in ODD.items():
            status, outcome = streamed if stream else whole
            answer, text = sent(service, profile, stream=stream)
            assert (text is None) is (status is None), name
            assert answer.status_code == (status or 200), name
            if answer.status_code >= 400:
                assert answer.json()["error"]["message"], name
            assert sent(service, profile, stream=stream)[0].status_code == 200, f"after {name}"
            expected += [(answer.status_code, outcome), (200, "completed")]
        service.row(service.complete(profile))
    rows = rows_of(service, profile)
    assert [(row["status_code"], row["outcome"]) for row in rows] == [*expected, (200, "completed")]
    assert {row["instance_id"] for row in rows} == {instance["id"]}
    assert all(row["error"] for row in rows if row["outcome"] != "completed")
    assert service.instance(instance["id"])["state"] == "ready"
    assert service.instance(instance["id"])["leases"] == 0
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    service.stop(profile)


def test_connections_that_the_engine_closes_without_notice_cost_no_request(faults: Faults) -> None:
    profile = faults.profile("closes", {"close_idle_connections_after": 1})
    faults.service.start(profile)
    answers = [faults.service.complete(profile, stream=number % 2 == 0, max_tokens=1) for number in range(40)]
    assert {answer.status_code for answer in answers} == {200}
    faults.service.row(answers[-1])
    assert [row["outcome"] for row in rows_of(faults.service, profile)] == ["completed"] * 40
    facts = [fact for fact in faults.facts(profile, "request") if fact["target"] == "/v1/completions"]
    assert len(facts) == 40, "none was served twice"
    assert len({fact["connection"] for fact in facts}) == 40
    faults.service.stop(profile)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_engine_that_loads_again_says_so_itself(faults: Faults, stream: bool) -> None:
    """It was ready before, so nobody waits for it; the client is told what the engine tells."""
    scenario = {"error_status": {"status": 503, "body": LOADING, "times": 2}}
    profile = faults.profile(f"reloads-{stream}".lower(), scenario)
    instance = faults.service.start(profile)
    for _ in range(2):
        answer, text = sent(faults.service, profile, stream=stream)
        assert (answer.status_code, text) == (503, LOADING)
        row = faults.service.row(answer)
        assert (row["outcome"], row["status_code"]) == ("upstream_error", 503)
        assert row["error"] == "the engine reported unavailable_error (503)"
    answer, _ = sent(faults.service, profile, stream=stream)
    assert faults.service.row(answer)["outcome"] == "completed"
    assert len(rows_of(faults.service, profile)) == 3
    assert faults.service.instance(instance["id"])["state"] == "ready"
    faults.service.stop(profile)


def test_an_event_of_ten_megabytes_passes(faults: Faults) -> None:
    text = "x" * 10_000_000
    long = f'data: {{"choices":[{{"text":"{text}","index":0,"finish_reason":null}}]}}\r\n\r\n'
    scenario = {
        "stream_chunks": [
            ":\r\n\r\n",
            *(long[at : at + 100_001] for at in range(0, len(long), 100_001)),
            LAST_EVENT,
            DONE,
        ]
    }
    profile = faults.profile("swollen", scenario)
    faults.service.start(profile)
    with faults.service.client.stream("POST", "/v1/completions", json=completion(profile, stream=True)) as answer:
        first, *rest = events(answer)
    assert json.loads(first)["choices"][0]["text"] == text
    assert rest[-1] == "[DONE]"
    row = faults.service.row(answer)
    assert (row["outcome"], row["generated_tokens"]) == ("completed", 2)
    faults.service.stop(profile)
