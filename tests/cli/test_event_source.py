from contextlib import ExitStack

import pytest
from cli.small_service import SmallService

from app.cli.client import ServiceClient, ServiceProblem, ServiceUnreachable
from app.cli.event_source import Message, MessageReader, follow
from app.instances.state import InstanceState

STREAM = (
    b":\n: words\nevent: instance.state\nid: 7\ndata: {}\n\ndata: caf\xc3\xa9 \x0b\n\n"
    b"id:8\ndata:a\r\ndata:  b\r\n\r\ndata\n\ndata: cut off"
)
MESSAGES = [
    Message("instance.state", "{}", "7"),
    Message("message", "café \x0b"),
    Message("message", "a\n b", "8"),
    Message("message", ""),
]


@pytest.mark.parametrize("size", [1, 2, 7, len(STREAM)])
def test_messages_are_read_however_the_bytes_are_split(size: int) -> None:
    reader = MessageReader()
    chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [message for chunk in chunks for message in reader.feed(chunk)] == MESSAGES


def test_a_service_that_comes_back_is_followed_on() -> None:
    earlier, later, lost = SmallService(), SmallService(), []
    with ExitStack() as stack:
        # It ends although the client still listens, and a later one takes its place.
        with earlier.running() as server:
            client = stack.enter_context(ServiceClient(server.base_url))
            stream = follow(client, "/events", on_loss=lambda: lost.append(True))
            assert next(stream) is None
            server.call(lambda: earlier.enter(InstanceState.READY))
            seen = next(message for message in stream if message)
        with later.running(port=server.port) as server:
            server.call(lambda: later.enter(InstanceState.LOADING))
            found = [next(message for message in stream if message) for _ in range(2)]
    assert [message.name for message in found] == ["missed", "instance.state"]
    assert found[1].document["state"] == "loading"
    assert int(found[1].id or 0) > int(seen.id or 0)
    assert lost == [True]


def test_who_was_never_there_is_an_error() -> None:
    with ServiceClient("http://127.0.0.1:9") as client, pytest.raises(ServiceUnreachable):
        next(follow(client, "/events"))


def test_a_problem_is_an_error_also_when_it_comes_late() -> None:
    service = SmallService()
    with service.running() as server, ServiceClient(server.base_url) as client:
        with pytest.raises(ServiceProblem, match="nobody"):
            next(follow(client, "/profiles/nobody/logs/stream"))
        stream = follow(client, "/profiles/gemma/logs/stream")
        assert next(stream) is None

        def delete() -> None:
            service.profiles.clear()
            service.outputs.forget("gemma")

        server.call(delete)
        with pytest.raises(ServiceProblem, match="gemma"):
            list(stream)
