"""What every life is given by its supervisor."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from app.events import Event
from app.instances.canary import CanaryPolicy
from app.instances.deadlines import Deadlines
from app.instances.evidence import MeasuredPlacement
from app.instances.orphans import ChildFiles
from app.instances.prepared import Prepared
from app.instances.record import InstanceRecord
from app.launch.report import Launch
from app.profiles.profile import Serving


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of a life: `publish` its events, `keep` its record at each change, `measured` what its load took.

    `begin_output` gives, for a profile and its new life, what hears each line of output. `last_look` is awaited before
    a life that has served is told to end; the flag says whether requests were cut off. It is quick and never raises.
    """

    publish: Callable[[Event], None]
    keep: Callable[[InstanceRecord], None]
    measured: Callable[[Launch, MeasuredPlacement], None]
    begin_output: Callable[[str, int], Callable[[str], object]]
    last_look: Callable[[Prepared, bool], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class InstanceNeeds:
    """`empty_folder` stands in for the child's configuration folder.

    `children` remembers on disk which processes are ours. `on_empty` is called when the last request of an instance
    has ended: whoever waits for room looks again. `serving` is what a profile says of its serving now, None where it
    is gone.
    """

    logs_dir: Path
    empty_folder: Path
    deadlines: Deadlines
    canary: CanaryPolicy
    children: ChildFiles
    tell: Listeners
    on_empty: Callable[[], None]
    serving: Callable[[str], Serving | None]
