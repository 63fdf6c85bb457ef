"""Where instances live, and by which rules."""

from dataclasses import dataclass, field
from pathlib import Path

from app.instances.canary import CanaryPolicy
from app.instances.deadlines import Deadlines
from app.instances.residency import ResidencyPolicy
from app.instances.restart import RestartPolicy


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`runtime_dir` is short and private, `transport` is `auto`, `unix` or `tcp`.

    `children_dir` remembers what we started, `logs_kept` lives keep their output, and
    `drain_seconds` is what running requests get where nobody says otherwise.
    `queue_limit` bounds the requests that wait for any profile; `return_seconds` how long devices may take to show
    memory as free; after `yield_after_seconds` of waiting for room a profile gets its turn.
    """

    runtime_dir: Path
    logs_dir: Path
    transport: str
    children_dir: Path
    deadlines: Deadlines
    drain_seconds: float = 30.0
    logs_kept: int = 200
    queue_limit: int = 256
    return_seconds: float = 15.0
    yield_after_seconds: float = 20.0
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    residency: ResidencyPolicy = field(default_factory=ResidencyPolicy)
    canary: CanaryPolicy = field(default_factory=CanaryPolicy)
