"""Server-sent events as a client reads them: parsed, and resumed where the connection was lost."""

import codecs
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.cli.client import ServiceClient, ServiceUnreachable

_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Message:
    """One event. `id` is where to resume after it, None where it has none."""

    name: str
    data: str
    id: str | None = None

    @property
    def document(self) -> Any:
        """Its data as JSON."""
        return json.loads(self.data)


class MessageReader:
    """Makes messages of the bytes of a stream, which may be split anywhere. Comments are left out."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._fields: dict[str, list[str]] = {}

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes."""
        # Not splitlines: what else it takes for a line end may stand in what an engine prints.
        *lines, self._rest = (self._rest + self._decode(data)).split("\n")
        for line in lines:
            name, _, value = line.removesuffix("\r").partition(":")
            if name:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            elif not line.rstrip("\r"):
                fields, self._fields = self._fields, {}
                if "data" in fields:
                    yield Message(
                        fields.get("event", ["message"])[-1], "\n".join(fields["data"]), fields.get("id", [None])[-1]
                    )


def follow(
    client: ServiceClient, path: str, *, on_loss: Callable[[], None] = lambda: None, **parameters: Any
) -> Iterator[Message | None]:
    """What a stream sends, without end; None is a sign of life, or that the connection is there (again).

    A connection that is lost is made again as soon as the service answers, and goes on where it was; `on_loss` hears of
    it once. The first one raises ServiceUnreachable; a problem, such as that of a profile that is gone, always raises.
    """
    last_id: str | None = None
    pause_seconds = _PAUSE_SECONDS
    has_answered = is_lost = False
    while True:
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        try:
            with client.stream(path, headers, parameters) as chunks:
                has_answered, is_lost, pause_seconds = True, False, _PAUSE_SECONDS
                reader = MessageReader()
                for chunk in chunks:
                    yield None
                    for message in reader.feed(chunk):
                        last_id = message.id or last_id
                        yield message
        except ServiceUnreachable:
            if not has_answered:
                raise
        if not is_lost:
            is_lost = True
            on_loss()
        time.sleep(pause_seconds)
        pause_seconds = min(_LONGEST_PAUSE_SECONDS, pause_seconds * 2)
