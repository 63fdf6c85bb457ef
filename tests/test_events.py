from dataclasses import dataclass

import pytest

from app.events import Event, EventBus


@dataclass(frozen=True, slots=True)
class Happened(Event):
    number: int


@dataclass(frozen=True, slots=True)
class Other(Event):
    pass


def test_subscribers_hear_their_class_in_order() -> None:
    bus, heard = EventBus(), []
    bus.subscribe(Happened, lambda event: heard.append(("first", event.number)))
    bus.subscribe(Happened, lambda event: heard.append(("second", event.number)))
    bus.publish(Other())
    bus.publish(Happened(1))
    assert heard == [("first", 1), ("second", 1)]


def test_a_subscriber_that_fails_is_logged_and_hurts_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = EventBus(), []

    def fails(_: Happened) -> None:
        raise ValueError("broken subscriber")

    bus.subscribe(Happened, fails)
    bus.subscribe(Happened, lambda event: heard.append(event.number))
    bus.publish(Happened(7))
    assert heard == [7]
    assert "broken subscriber" in caplog.text
