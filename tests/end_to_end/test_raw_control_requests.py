"""The same for the control API: what no client library sends is refused by name, and is no error of ours."""

import pytest
from fixtures.raw_http import REFUSED_BODIES, Edge, chunked, get, nested, request

PROFILE = b'{"id":"made","target":{"path":"dense.gguf"},%b}'
CONTROL_BODIES = {
    **{name: body for name, body in REFUSED_BODIES.items() if name not in ("nothing", "null")},
    "half a character as a description": PROFILE % b'"description":"\\ud800"',
    "half a character as a field": PROFILE % b'"\\ud800":1',
    "half a character as an alias": PROFILE % b'"serving":{"aliases":["\\ud800"]}',
    "half a character to be sent": PROFILE % b'"serving":{"set_parameters":{"\\ud800":1}}',
    "half a character in the environment": PROFILE % b'"env":{"A":"\\ud800"}',
    "half a character as a path": b'{"id":"made","target":{"path":"\\ud800"}}',
    "infinity to be sent": PROFILE % b'"serving":{"set_parameters":{"a":1e999}}',
    "500 levels to be sent": PROFILE % (b'"serving":{"set_parameters":{"a":%b}}' % nested(500)),
    "a size of 4,000 digits": PROFILE % (b'"context":{"size":%b}' % (b"9" * 4000)),
    "half a character as a key's profile": b'{"name":"made","profiles":["\\ud800"]}',
    "half a character as a command": b'{"command":"llama-server -m \\ud800"}',
    "half a character as a target": b'{"target":"\\ud800"}',
}
CONTROL_LINES = [
    "POST /profiles",
    "PUT /profiles/made",
    "PATCH /profiles/known",
    "POST /profiles/known/check",
    "POST /profiles/import",
    "POST /check",
    "POST /suggest",
    "POST /keys",
]


@pytest.mark.parametrize("line", CONTROL_LINES)
def test_the_control_api_refuses_bodies_by_name(edge: Edge, line: str) -> None:
    for name, body in CONTROL_BODIES.items():
        sent = b'{"profile":%b}' % body if line == "POST /check" and b'"id"' in body else body
        answer = edge.send(request(f"{line} HTTP/1.1".encode(), body=sent))
        assert answer is not None, name
        assert answer.status in (400, 404, 422), (name, answer)
        assert answer.headers["content-type"] == "application/problem+json", name


def test_the_control_api_reads_no_more_than_its_bound(edge: Edge) -> None:
    large = b"a" * (4 * 1024 * 1024 + 1)
    for line in (b"POST /check HTTP/1.1", b"PUT /profiles/made HTTP/1.1", b"POST /keys HTTP/1.1"):
        for raw in (request(line, body=large), chunked(line=line, body=large)):
            answer = edge.send(raw)
            assert answer is not None
            assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json"), answer.body


@pytest.mark.parametrize(
    ("target", "statuses"),
    [
        (b"/profiles/%00", {404}),
        (b"/profiles/%ff%fe", {404}),
        (b"/profiles/%2e%2e%2f%2e%2e", {404}),
        (b"/profiles/%zz%", {404}),
        (b"/v1/models/%ff%00", {404}),
        (b"/requests/%00%ff", {404}),
        (b"/requests/ffffffffffffffff", {404}),
        (b"/instances/ffffffffffffffff", {404}),
        (b"/requests?cursor=%ff%00", {422}),
        (b"/requests?profile=%ff%00", {200}),
        (b"/requests?limit=" + b"9" * 5000, {422}),
        (b"/requests?since=0001-01-01T00:00:00%2B23:59", {200, 422}),
        (b"/stats?until=9999-12-31T23:59:59-23:59", {200, 422}),
        (b"/events?after=" + b"9" * 400, {200, 422}),
        (b"/instances?cursor=ffffffffffffffff", {422}),
        (b"//health", {404}),
        (b"*", {404}),
    ],
)
def test_odd_paths_and_queries_of_the_control_api_are_answered(edge: Edge, target: bytes, statuses: set[int]) -> None:
    answer = edge.send(get(target))
    assert answer is not None
    assert answer.status in statuses, answer.body


def test_who_leaves_the_control_api_in_the_middle_is_no_error(edge: Edge) -> None:
    for line in CONTROL_LINES:
        raw = request(f"{line} HTTP/1.1".encode(), body=b'{"a":1}')
        edge.send_and_leave(raw[:-3])
        edge.send_and_leave(raw[:20])
        edge.send_and_leave(raw)
    edge.send_and_leave(get(b"/events"))
