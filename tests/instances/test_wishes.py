"""Starts on their way, and what is told of those that came to no life."""

import asyncio

import pytest

from app.errors import DatabaseUnavailable, EngineNotFound, InstanceFailed, ProfileNotFound, ProfileNotRunning
from app.events import Event
from app.instances.facts import StartNotBegun
from app.instances.wishes import Wishes


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def wishes(told: list[Event]) -> Wishes:
    return Wishes(told.append)


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (EngineNotFound("there is none"), "engine-not-found"),
        (DatabaseUnavailable("locked"), "database-unavailable"),
        (AssertionError("a mistake of ours"), "internal-error"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_in_the_way_is_told_once(wishes: Wishes, told: list[Event], obstacle: Exception, reason: str) -> None:
    with pytest.raises(type(obstacle)), wishes.wish("gemma"):
        raise obstacle
    assert told == [StartNotBegun("gemma", reason)]
    assert not wishes.is_open("gemma")


def test_what_the_system_refuses_is_a_failure_that_names_it(wishes: Wishes, told: list[Event]) -> None:
    with pytest.raises(InstanceFailed, match="No space left") as failed, wishes.wish("gemma"):
        raise OSError(28, "No space left on device")
    assert failed.value.details["reason"] == "engine-not-started"
    assert told == [StartNotBegun("gemma", "engine-not-started")]


@pytest.mark.parametrize(
    "end",
    [
        ProfileNotRunning("stopped by hand"),
        ProfileNotFound("deleted meanwhile"),
        InstanceFailed("given up", reason="exited", last_lines=[]),
        asyncio.CancelledError(),
    ],
    ids=lambda end: type(end).__name__,
)
def test_a_start_that_nobody_wants_or_that_is_held_back_is_none(
    wishes: Wishes, told: list[Event], end: BaseException
) -> None:
    with pytest.raises(type(end)), wishes.wish("gemma"):
        raise end
    assert told == []


def test_a_start_that_came_to_a_life_is_told_by_that(wishes: Wishes, told: list[Event]) -> None:
    with wishes.wish("gemma") as wish:
        wish.demand()
        assert wishes.is_open("gemma")
    assert told == []
