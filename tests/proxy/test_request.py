from collections.abc import Iterable

import pytest

from app.errors import BodyInvalid, BodyTooLarge
from app.proxy.asgi import Message, Receive
from app.proxy.request import Asked, ClientGone, parse_asked, read_body
from app.proxy.request_body import RequestBody


def receive_of(*messages: Message) -> Receive:
    waiting: Iterable[Message] = iter(messages)

    async def receive() -> Message:
        return next(iter(waiting))

    return receive


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    ("body", "query", "asked"),
    [
        (b'{"model":"a","stream":true}', b"", Asked("a", True)),
        (b'{"model":"a","stream":false}', b"model=b", Asked("a", False)),
        (b'{"stream":null,"model":null}', b"x=1&model=org%2Fb%3Aq", Asked("org/b:q", False)),
        (b'{"model":""}', b"model=b", Asked("b", False)),
        (b"{}", b"model=gro%C3%9F", Asked("groß", False)),
        (b' {"messages":[{"model":"inner","stream":true}]} ', b"", Asked(None, False)),
        (b"{}", b"model=", Asked(None, False)),
        (b"{}", b"models=b", Asked(None, False)),
    ],
)
def test_what_is_asked_for(body: bytes, query: bytes, asked: Asked) -> None:
    assert parse_asked(RequestBody(body), query) == asked


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"model=a", b'{"model":3}', b'{"stream":"yes"}', b"\xff", b'{"a":' * 100_000],
)
def test_what_is_no_request(body: bytes) -> None:
    with pytest.raises(BodyInvalid, match="the body is not"):
        parse_asked(RequestBody(body), b"")


async def test_a_body_is_read_to_its_end() -> None:
    receive = receive_of(part(b"ab", more=True), part(b"", more=True), part(b"c", more=False))
    assert await read_body(receive, None, 3) == b"abc"


async def test_a_body_over_the_limit_is_refused() -> None:
    with pytest.raises(BodyTooLarge, match="over 3 bytes"):
        await read_body(receive_of(part(b"ab", more=True), part(b"cd", more=True)), None, 3)


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(receive_of(), 4, 3)


async def test_a_client_that_leaves_is_noticed() -> None:
    with pytest.raises(ClientGone):
        await read_body(receive_of(part(b"ab", more=True), {"type": "http.disconnect"}), None, 3)
