"""Requests that no client library sends: each is refused or served, recorded once where the relay took it, and the
service goes on.
"""

import pytest
from fixtures.raw_http import (
    BODY,
    COMPLETIONS,
    MOST_BODY_BYTES,
    REFUSED_BODIES,
    Edge,
    chunked,
    get,
    head,
    read_answer,
    request,
)

# What the server's parser refuses, so that nobody behind it sees a request.
MALFORMED = {
    "bytes": b"\x00\x01\x02\r\n\r\n",
    "TLS": bytes.fromhex("160301020001") + b"\x01" * 100 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": request(b"POST /v1/completions HTTP/9.9"),
    "a method in lower case": request(b"post /v1/completions HTTP/1.1"),
    "an unknown method": request(b"BREW /v1/completions HTTP/1.1"),
    "an endless method": b"A" * 70_000,
    "a space in the path": request(b"POST /v1/comp letions HTTP/1.1"),
    "tabs in the request line": request(b"POST\t/v1/completions\tHTTP/1.1"),
    "no path": request(b"POST v1/completions HTTP/1.1"),
    "a host to connect to": request(b"CONNECT localhost:443 HTTP/1.1"),
    "an address that is none": request(b"POST http://[::1/v1/completions HTTP/1.1"),
    "a NUL in the path": request(b"POST /v1/completions\x00 HTTP/1.1"),
    "a path that is not ASCII": request(b"POST /upstream/known/\xff\xfe HTTP/1.1"),
    "a query that is not ASCII": request(b"POST /v1/completions?model=\xff HTTP/1.1"),
    "a path of 100,000 characters": get(b"/" + b"a" * 100_000),
    "two lengths": request(COMPLETIONS, b"Content-Length: 3"),
    "the same length twice": request(COMPLETIONS, b"Content-Length: %d" % len(BODY)),
    "lengths in a list": head(COMPLETIONS, b"Content-Length: 46, 46") + BODY,
    "a negative length": head(COMPLETIONS, b"Content-Length: -1") + BODY,
    "a length with a sign": head(COMPLETIONS, b"Content-Length: +46") + BODY,
    "a length in hexadecimal": head(COMPLETIONS, b"Content-Length: 0x2e") + BODY,
    "an empty length": head(COMPLETIONS, b"Content-Length:") + BODY,
    "a length past all numbers": head(COMPLETIONS, b"Content-Length: " + b"9" * 30) + BODY,
    "a space before the colon": head(COMPLETIONS, b"Content-Length : 46") + BODY,
    "a length and chunks": request(COMPLETIONS, b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunks and a length": chunked(b"Content-Length: 46"),
    "a coding that is none": request(COMPLETIONS, b"Transfer-Encoding: identity"),
    "chunks within another coding": chunked(coding=b"Transfer-Encoding: chunked, gzip"),
    "chunks twice": chunked(coding=b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    "a coding on the next line": chunked(coding=b"Transfer-Encoding:\r\n chunked"),
    "a coding after a vertical tab": chunked(coding=b"Transfer-Encoding: \x0bchunked"),
    "a header without a colon": request(COMPLETIONS, b"NoColon"),
    "a header without a name": request(COMPLETIONS, b": a"),
    "a space in a name": request(COMPLETIONS, b"X A: a"),
    "a name that is not ASCII": request(COMPLETIONS, b"X-\xff: a"),
    "a NUL in a header": request(COMPLETIONS, b"X-A: a\x00b"),
    "a CR in a header": request(COMPLETIONS, b"X-A: a\rb"),
    "an LF in a header": request(COMPLETIONS, b"X-A: a\nb"),
    "a header on two lines": request(COMPLETIONS, b"X-A: a\r\n b"),
    "lines that end in LF": request().replace(b"\r\n", b"\n"),
    "a header of a megabyte": request(COMPLETIONS, b"X-A: " + b"a" * 1_000_000),
    "a head of 100,000 headers": request(COMPLETIONS, *(b"X-%d: a" % number for number in range(100_000))),
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_http_is_refused(edge: Edge, raw: bytes) -> None:
    answer = edge.send(raw)
    assert answer is None or answer.status == 400


# Bodies are read when their request is with the relay already.
BAD_BODIES = {
    "no length": head() + BODY,
    "an unknown coding": chunked(coding=b"Transfer-Encoding: xchunked"),
    "a size that is none": chunked(size=b"zz"),
    "a negative size": chunked(size=b"-1"),
    "a size past all numbers": chunked(size=b"f" * 17),
    "a size with a prefix": chunked(size=b"0x2e"),
    "a size that is too small": chunked(size=b"3"),
    "a size that ends in LF": chunked(size=b"%x\n"),
    "a trailer without a colon": chunked(end=b"0\r\nbad\r\n\r\n"),
}


@pytest.mark.parametrize("raw", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_cannot_be_read_is_refused_and_recorded(edge: Edge, raw: bytes) -> None:
    answer = edge.send(raw)
    assert answer is None or answer.status == 400
    assert [row["outcome"] in ("client_gone", "rejected") for row in edge.rows(1)] == [True]


SERVED = {
    "plainly": request(),
    "two spaces in the request line": request(b"POST  /v1/completions HTTP/1.1"),
    "HTTP/1.0": request(b"POST /v1/completions HTTP/1.0"),
    "HTTP/1.0 without a host": request(b"POST /v1/completions HTTP/1.0", host=b""),
    "no host": request(host=b""),
    "its whole address": request(b"POST http://localhost/v1/completions HTTP/1.1"),
    "chunks": chunked(),
    "chunks with extensions": chunked(size=b'%x;name=value;other="quoted"'),
    "chunks with a trailer": chunked(end=b"0\r\nX-A: a\r\n\r\n"),
    "chunks in HTTP/1.0": chunked(line=b"POST /v1/completions HTTP/1.0"),
    "a header that is not ASCII": request(COMPLETIONS, b"X-A: \xff\xfe"),
    "a request id that is not ASCII": request(COMPLETIONS, b"X-Request-Id: \xff"),
    "a request id that is long": request(COMPLETIONS, b"X-Request-Id: " + b"a" * 5000),
    "a category that is not ASCII": request(COMPLETIONS, b"X-Paceline-Category: \xff\xfe"),
    "a category that is long": request(COMPLETIONS, b"X-Paceline-Category: " + b"a" * 5000),
    "a key that is not ASCII": request(COMPLETIONS, b"Authorization: Bearer \xff\xfe"),
    "hop-by-hop headers of its own": request(COMPLETIONS, b"Connection: content-type, host, content-length"),
    "another protocol": request(COMPLETIONS, b"Connection: Upgrade", b"Upgrade: foo"),
    "an expectation": request(COMPLETIONS, b"Expect: 100-continue"),
    "an unknown expectation": request(COMPLETIONS, b"Expect: 200-maybe"),
    "2,000 fields in the query": request(b"POST /v1/completions?" + b"a=b&" * 2000 + b"model=known HTTP/1.1"),
    "the same field twice": request(body=b'{"model":"unknown",' + BODY[1:]),
    "as a stream after all": request(body=b'{"stream":false,"stream":true,' + BODY[1:]),
}


@pytest.mark.parametrize("raw", SERVED.values(), ids=SERVED)
def test_what_is_odd_and_right_is_served(edge: Edge, raw: bytes) -> None:
    answer = edge.send(raw)
    assert answer is not None
    assert answer.status == 200, answer.body
    assert [(row["id"], row["profile_id"]) for row in edge.rows(1)] == [(answer.headers["x-request-id"], "known")]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages", "/infill"])
def test_a_body_that_says_nothing_is_refused_and_recorded(edge: Edge, path: str) -> None:
    refused = {}
    for name, body in REFUSED_BODIES.items():
        answer = edge.send(request(f"POST {path} HTTP/1.1".encode(), body=body))
        assert answer is not None, name
        # What is right in form is the engine's to refuse, however it does.
        assert 400 <= answer.status < 500 or answer.is_of_engine, (name, answer)
        refused[answer.headers["x-request-id"]] = answer.status
    rows = edge.rows(len(refused))
    assert len(rows) == len(REFUSED_BODIES)
    assert {row["id"]: row["status_code"] for row in rows} == refused


PATHS = {
    "no profile": (b"/upstream/", 400),
    "5,000 slashes": (b"/upstream/" + b"/" * 5000, 400),
    "a profile that is not UTF-8": (b"/upstream/%ff/%fe", 404),
    "line ends": (b"/upstream/known/%00%0d%0aX-A:%20b", 404),
    "out of the engine": (b"/upstream/known/../../health", 404),
}


@pytest.mark.parametrize(("target", "status"), PATHS.values(), ids=PATHS)
def test_a_path_that_leads_nowhere_is_refused_and_recorded(edge: Edge, target: bytes, status: int) -> None:
    answer = edge.send(get(target))
    assert answer is not None
    assert answer.status == status, answer.body
    assert [row["status_code"] for row in edge.rows(1)] == [status]


def test_a_body_over_the_bound_is_refused_before_and_while_it_is_read(edge: Edge) -> None:
    for raw in (
        head(COMPLETIONS, b"Content-Length: 9999999999999"),
        request(body=b"a" * (MOST_BODY_BYTES + 1)),
        chunked(body=b"a" * (MOST_BODY_BYTES + 1)),
    ):
        answer = edge.send(raw)
        assert answer is not None
        assert answer.status == 413
        assert [row["status_code"] for row in edge.rows(1)] == [413]


def test_who_leaves_before_the_end_of_the_request_has_a_row(edge: Edge) -> None:
    whole = request()
    for pieces in (
        [whole[:-10]],
        [bytes([each]) for each in whole[:-10]],
        [head(COMPLETIONS, b"Transfer-Encoding: chunked")],
        [head(COMPLETIONS, b"Transfer-Encoding: chunked") + b"2e\r\n" + BODY[:10]],
    ):
        edge.send_and_leave(*pieces)
        assert [(row["outcome"], row["status_code"]) for row in edge.rows(1)] == [("client_gone", None)]
    edge.send_and_leave(whole[:30])
    edge.send_and_leave()


def test_requests_in_one_piece_are_answered_one_after_the_other(edge: Edge) -> None:
    with edge.connection() as connected:
        connected.sendall(request() + get(b"/v1/models") + request(body=b"1") + get(b"/health"))
        # One reader for all: each would keep what it has read ahead.
        with connected.makefile("rb") as file:
            statuses = []
            for _ in range(4):
                statuses.append(int(file.readline().split()[1]))
                length = 0
                while (line := file.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                file.read(length)
    assert statuses == [200, 200, 400, 200]
    assert [row["status_code"] for row in edge.rows(2)] == [400, 200]


def test_a_body_is_asked_for_where_the_client_waits_for_that(edge: Edge) -> None:
    with edge.connection() as connected:
        connected.sendall(head(COMPLETIONS, b"Expect: 100-continue", b"Content-Length: %d" % len(BODY)))
        assert connected.recv(1000).startswith(b"HTTP/1.1 100 ")
        connected.sendall(BODY)
        answer = read_answer(connected)
    assert answer is not None
    assert answer.status == 200
    assert len(edge.rows(1)) == 1
