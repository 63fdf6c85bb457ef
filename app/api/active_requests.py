"""Requests in flight, in the shape of their rows."""

from collections.abc import Sequence

from app.api.finished_request import finished_request
from app.api.requests import RequestResource
from app.identifiers import parse_id
from app.llama_server.timings import EMPTY
from app.proxy.observer import Observation, Outcome
from app.proxy.relay import Relay


class RelayedRequests:
    """What the relay has in flight."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def list(self) -> Sequence[RequestResource]:
        """All of them, newest first."""
        return [_resource(each) for each in reversed(self._relay.active())]

    def cancel(self, identifier: str) -> RequestResource | None:
        """End one, by its id or its client's; None where no such request is in flight."""
        number = parse_id(identifier)
        for each in self._relay.active():
            if each.request_id == number or each.client_request_id == identifier:
                shown = _resource(each)
                return shown if self._relay.cancel(each.request_id) else None
        return None


def _resource(observation: Observation) -> RequestResource:
    """As it would be recorded if it ended now; without an outcome, and without what only an end tells."""
    so_far = finished_request(observation.finish(Outcome.CANCELLED, None, EMPTY))
    return so_far.model_copy(update={"outcome": None})
