"""What a profile takes out of request bodies, or puts in. Pure.

A body is encoded anew only where a profile has such filters and they change something: all others pass byte by byte.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.errors import BodyInvalid
from app.proxy.request_body import RequestBody

# These say what is asked of the relay and where it goes; a filter that changed them would make rows untrue.
_NOT_TO_FILTER = frozenset({"model", "stream"})

_LOGPROBS = ("logprobs", "top_logprobs", "n_probs")
_any_decoder = msgspec.json.Decoder(Any)


def filtered(body: RequestBody, strip: Sequence[str], put: Mapping[str, Any]) -> RequestBody:
    """The body without the members `strip` names, and with those of `put` in the place of its own.

    The body is a JSON object, as the relay has seen by then. Members keep their order; new ones come last.
    """
    if not strip and not put:
        return body
    members = body.members
    taken = {name for name in strip if name not in _NOT_TO_FILTER}
    changed: dict[str, Any] = {name: value for name, value in members.items() if name not in taken}
    changed.update({name: value for name, value in put.items() if name not in _NOT_TO_FILTER})
    # What was not touched stays as it was written: numbers that Python cannot hold among it.
    return body if changed == members else RequestBody(msgspec.json.encode(changed))


def asks_logprobs(body: RequestBody) -> bool:
    """Whether a request wants log probabilities, by any of the names that the engine knows."""
    try:
        return any(body.member(name, _any_decoder) for name in _LOGPROBS)
    except BodyInvalid:
        return False
