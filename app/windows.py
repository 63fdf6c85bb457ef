"""The acceptance windows put together: who reads the engines, and who hears of what they counted."""

from collections.abc import Callable, Iterable

from app.events import EventBus
from app.instances.prepared import Prepared
from app.instances.roster import Roster
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.windows import AcceptanceWindowClosed, AcceptanceWindows
from app.proxy.scrapes import EngineScraped
from app.telemetry.windows import RecordedWindow, WindowRecorder


def windows_of(roster: Callable[[], Roster], bus: EventBus) -> AcceptanceWindows:
    """What reads the engines; `roster` has the lives, and is asked for when they are looked at."""

    def ready() -> Iterable[Prepared]:
        return [life.prepared for life in roster().lives() if life.state is InstanceState.READY]

    windows = AcceptanceWindows(ready, bus.publish)
    bus.subscribe(InstanceStateChanged, windows.on_instance_state)
    bus.subscribe(EngineScraped, lambda event: windows.scraped(event.profile_id))
    return windows


def hear_windows(bus: EventBus, take: Callable[[RecordedWindow], None]) -> None:
    """Have each window recorded."""
    bus.subscribe(AcceptanceWindowClosed, WindowRecorder(take).on_window)
