"""Looking at a server process from outside: what it computes, holds and reads."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from app.instances.evidence import ProcessSample

_MEMBERS_SECONDS = 5.0


def session_members(leaders: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """For each leader of a session the processes in it, itself included.

    Every server leads a session of its own, so what a wrapper script started for it is found here. One walk over the
    process list and a system call for each process; who ends meanwhile is left out.
    """
    found: dict[int, set[int]] = {leader: set() for leader in leaders}
    for pid in psutil.pids() if found else ():
        with suppress(ProcessLookupError, PermissionError):
            session = os.getsid(pid)
            if session in found:
                found[session].add(pid)
    return {leader: frozenset(members) for leader, members in found.items()}


@dataclass(slots=True)
class _Counts:
    """What one process was last seen at; `cpu_seconds` begins at the first look."""

    first_cpu_seconds: float
    cpu_seconds: float
    read_bytes: int


class ProcessLook:
    """Looks at one server process and what it started. Blocks for a moment: meant for a thread.

    Read bytes are what came from storage; with `with_cached` also what read calls got from the page cache, which is
    how a load comes on whose files were read before.
    """

    def __init__(
        self,
        pid: int,
        *,
        with_cached: bool = False,
        members_seconds: float = _MEMBERS_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._with_cached = with_cached
        self._members_seconds = members_seconds
        self._clock = clock
        self._processes: dict[int, psutil.Process] = {}
        self._counts: dict[int, _Counts] = {}
        self._members_at = float("-inf")
        self._before: tuple[float, float] | None = None

    def take(self) -> ProcessSample:
        """What there is now; a value is None where the system does not tell it of the server itself. Never raises."""
        now = self._clock()
        if now - self._members_at >= self._members_seconds:
            self._find_members()
            self._members_at = now
        resident: dict[int, int] = {}
        reads: set[int] = set()
        computes: set[int] = set()
        for pid, process in self._processes.items():
            counts = self._counts.setdefault(pid, _Counts(-1.0, 0.0, 0))
            # One by one: a container may forbid any of them alone.
            with suppress(psutil.Error, OSError, NotImplementedError):
                times = process.cpu_times()
                counts.cpu_seconds = times.user + times.system
                if counts.first_cpu_seconds < 0:
                    counts.first_cpu_seconds = counts.cpu_seconds
                computes.add(pid)
            with suppress(psutil.Error, OSError, NotImplementedError):
                resident[pid] = process.memory_info().rss
            with suppress(psutil.Error, OSError, NotImplementedError, AttributeError):
                counts.read_bytes = self._read_bytes(process)
                reads.add(pid)
        return ProcessSample(
            at_seconds=now,
            busy_cores=self._busy_cores(now) if self._pid in computes else None,
            resident_bytes=sum(resident.values()) if self._pid in resident else None,
            read_bytes=sum(counts.read_bytes for counts in self._counts.values()) if self._pid in reads else None,
        )

    def _find_members(self) -> None:
        members = session_members((self._pid,))[self._pid] | {self._pid}
        for pid in self._processes.keys() - members:
            del self._processes[pid]
        for pid in sorted(members - self._processes.keys()):
            with suppress(psutil.Error):
                self._processes[pid] = psutil.Process(pid)

    def _read_bytes(self, process: psutil.Process) -> int:
        counters = process.io_counters()
        # Linux alone tells what went through read calls.
        cached = int(getattr(counters, "read_chars", 0)) if self._with_cached else 0
        return max(int(counters.read_bytes), cached)

    def _busy_cores(self, now: float) -> float | None:
        """Seconds computed for each second since the look before; None at the first."""
        total = sum(counts.cpu_seconds - max(0.0, counts.first_cpu_seconds) for counts in self._counts.values())
        before, self._before = self._before, (now, total)
        if before is None or now <= before[0]:
            return None
        return max(0.0, total - before[1]) / (now - before[0])
