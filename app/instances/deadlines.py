"""How long each step of a life may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds for a whole load, for a load without a sign of progress, from the first TERM to the second, and from that
    to KILL.
    """

    load_total_seconds: float
    load_stall_seconds: float
    terminate_seconds: float
    kill_seconds: float
