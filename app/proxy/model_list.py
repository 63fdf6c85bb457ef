"""What GET /v1/models shows to a caller: the names that it may put into `model`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.instances.state import InstanceState
from app.proxy.auto import AUTO
from app.proxy.caller import Caller

_ON_THE_WAY = (InstanceState.READY, InstanceState.LOADING, InstanceState.STARTING)


def shown_models(models: Sequence[Mapping[str, Any]], caller: Caller) -> Sequence[Mapping[str, Any]]:
    """Those of the caller's profiles, and after them `auto`, where there is anything to choose from.

    Each has `id`, `object`, `created` (seconds since 1970), `owned_by`, `profile` and `state`. A profile or alias of
    the name `auto` comes before the choice of that name, as for requests, also where the caller may not use it.
    """
    permitted = [model for model in models if caller.may_use(model["profile"])]
    if not permitted or any(model["id"] == AUTO for model in models):
        return permitted
    return [*permitted, _auto(permitted)]


def _auto(choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Its profile is null, since each request has one of its own; its state is that of the profile that is furthest."""
    states = {model["state"] for model in choices}
    return {
        "id": AUTO,
        "object": "model",
        "created": min(model["created"] for model in choices),
        "owned_by": "paceline",
        "profile": None,
        "state": next((state for state in _ON_THE_WAY if state in states), InstanceState.STOPPED).value,
    }
