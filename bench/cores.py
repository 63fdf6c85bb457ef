"""Which core does what: the servers under measurement on one, the engine and the client on another.

Left to the scheduler, a short wait costs twice as much CPU time where client and server happen to be on two cores, and
where they are changes from round to round: nginx on one connection took 17 us in one round and 37 in the next.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


@contextmanager
def placed_apart(server_pids: Iterable[int], *, is_wanted: bool = True) -> Iterator[None]:
    """While the block runs, the servers have one core, and this process and all others that it started another.

    Only where it is wanted, and there are two cores.
    """
    allowed = os.sched_getaffinity(0)
    if not is_wanted or len(allowed) < 2:
        yield
        return
    server, others, *_ = sorted(allowed)
    started = [process.pid for process in psutil.Process().children(recursive=True)]
    _keep_on({others}, [os.getpid(), *started])
    _keep_on({server}, server_pids)
    try:
        yield
    finally:
        _keep_on(allowed, [os.getpid(), *started])


def _keep_on(cores: set[int], pids: Iterable[int]) -> None:
    """All threads of these processes, and those that they start."""
    for pid in pids:
        # A thread may end, and at the end of the block a process may have.
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)
