"""What GET /v1/models shows, to whom."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.proxy.caller import ANYONE, Caller
from app.proxy.model_list import shown_models


def model(name: str, profile: str, state: str = "stopped", created: int = 10) -> Mapping[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "paceline",
        "profile": profile,
        "state": state,
    }


MODELS = [model("a", "a", created=7), model("b", "b", "ready", 5), model("org/b", "b", "ready", 5)]


def ids(models: Any) -> list[str]:
    return [one["id"] for one in models]


def test_auto_comes_last_and_looks_like_the_others() -> None:
    shown = shown_models(MODELS, ANYONE)
    assert shown[:-1] == MODELS
    assert shown[-1] == {**model("auto", "", "ready", 5), "profile": None}
    assert list(shown[-1]) == list(shown[0])


def test_a_key_sees_its_own_and_auto_chooses_among_those() -> None:
    shown = shown_models(MODELS, Caller("key", frozenset({"a"})))
    assert ids(shown) == ["a", "auto"]
    assert (shown[-1]["state"], shown[-1]["created"]) == ("stopped", 7)


@pytest.mark.parametrize("models", [[], MODELS])
def test_where_nothing_may_be_used_nothing_is_listed(models: list[Mapping[str, Any]]) -> None:
    assert shown_models(models, Caller("key", frozenset({"gone"}))) == []
    assert shown_models([], ANYONE) == []


def test_a_profile_or_alias_of_that_name_stands_there_instead() -> None:
    named = [*MODELS, model("auto", "b", "ready")]
    assert shown_models(named, ANYONE) == named
    # The name is taken: this caller could not use it either.
    assert ids(shown_models(named, Caller("key", frozenset({"a"})))) == ["a"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("failed", "loading", "ready"), "ready"),
        (("starting", "loading", "draining"), "loading"),
        (("stopped", "starting"), "starting"),
        (("failed", "stopping", "draining"), "stopped"),
    ],
)
def test_its_state_is_that_of_the_profile_that_is_furthest(states: tuple[str, ...], expected: str) -> None:
    models = [model(str(number), str(number), state) for number, state in enumerate(states)]
    assert shown_models(models, ANYONE)[-1]["state"] == expected
