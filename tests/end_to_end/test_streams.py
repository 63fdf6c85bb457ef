"""Events and output of the real service, over the real engine."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, Service, client_of, served_process, settings_for

from app.cli.client import ServiceClient, ServiceProblem
from app.cli.event_source import Message, follow

DENSE = {"target": {"path": "dense.gguf"}, "context": {"threads": 1}}


def opened(stack: ExitStack, service: Service, path: str, **query: Any) -> Iterator[Message]:
    """What a stream sends; it is there when this returns."""
    client = stack.enter_context(ServiceClient(service.base_url))
    stream = follow(client, path, **query)
    assert next(stream) is None
    return (message for message in stream if message is not None)


def test_a_life_and_its_requests_are_told_as_they_happen(service: Service) -> None:
    service.add({"id": "told", **DENSE})
    with ExitStack() as stack:
        events = opened(stack, service, "/events", types="instance.state,request.finished")
        lines = opened(stack, service, "/profiles/told/logs/stream")
        started = service.start("told")
        row = service.row(service.complete("told"))
        service.stop("told")
        told = [next(events) for _ in range(7)]
        assert json.loads(next(lines).data) == {"instance_id": started["id"]}
        assert next(lines).name == "message"
    documents = [message.document for message in told]
    assert [document.get("state") for document in documents] == [
        "starting", "loading", "ready", None, "draining", "stopping", "stopped",
    ]  # fmt: skip
    assert documents[3] == row
    assert documents[2]["argv"] == started["argv"]
    assert documents[6] == service.instance(started["id"])


def test_what_was_printed_already_comes_first_and_all_of_it_once(service: Service) -> None:
    service.add({"id": "printed", **DENSE})
    service.start("printed")
    service.stop("printed")
    kept = service.client.get("/profiles/printed/logs", params={"tail": 2000}).json()["items"]
    with ExitStack() as stack:
        lines = opened(stack, service, "/profiles/printed/logs/stream")
        assert next(lines).name == "instance"
        assert [next(lines).data for _ in kept] == kept
        service.client.delete("/profiles/printed")
        with pytest.raises(ServiceProblem, match="printed"):
            next(lines)


@pytest.mark.parametrize("path", ["/events", "/profiles/d/logs/stream"])
def test_a_service_that_is_followed_ends_all_the_same(tiny: TinyModels, tmp_path: Path, path: str) -> None:
    settings = settings_for(tmp_path, tiny.dense_target.parent, drain_seconds=DEADLINE_SECONDS * 2)
    with served_process(settings) as served, client_of(served.service.base_url) as service:
        service.add({"id": "d", **DENSE})
        with service.client.stream("GET", path) as answer:
            assert answer.status_code == 200
            served.process.send_signal(signal.SIGTERM)
            # Well within the drain: nobody waits for it.
            assert served.process.wait(DEADLINE_SECONDS) in (0, -signal.SIGTERM)
            assert answer.read().startswith(b":\n")
    assert "Traceback" not in "".join(served.log)
    assert "exceeded" not in "".join(served.log)
