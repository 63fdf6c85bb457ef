"""Servers that an earlier life of this data folder left behind: remembered while they live, ended at the next start.

The kernel ends a child with the service (`tether.py`), but not everywhere, and not what a wrapper script started. So a
small file stands for each living child. At the next start the process that it names is ended only where its number,
the time of its start and its arguments are all as written; nothing else is ever touched.
"""

import json
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from app.identifiers import id_text
from app.instances.looks import session_members

_log = logging.getLogger(__name__)
_PREFIX: Final = "paceline-"
_TERMINATE_SECONDS: Final = 2.0
_KILL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """What is kept of a living child. `started` is a word of `start_mark`, `argv` what was executed."""

    pid: int
    started: str
    argv: Sequence[str]
    runtime_dir: str

    @classmethod
    def read(cls, path: Path) -> "ChildRecord":
        """From its file. Raises ValueError where it is not one, OSError where it cannot be read."""
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.keys() != set(cls.__dataclass_fields__):
            raise ValueError("other members than expected")
        pid, argv = document["pid"], document["argv"]
        # A process number of 0 or less means groups, and 1 is not ours.
        if not isinstance(pid, int) or pid < 2 or not isinstance(argv, list) or len(argv) < 2:
            raise ValueError("no process number, or no arguments")
        if not all(isinstance(word, str) for word in (*argv, document["started"], document["runtime_dir"])):
            raise ValueError("not text")
        return cls(**document)


def start_mark(pid: int) -> str | None:
    """When the process started, as the kernel has it; None where there is none of that number.

    On Linux in ticks since boot with the id of the boot: a time of day would move when the clock is set.
    """
    with suppress(OSError, IndexError, ValueError):
        # The name, in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{int(fields[19])}"
    with suppress(psutil.Error):
        return f"{psutil.Process(pid).create_time():.2f}"
    return None


class ChildFiles:
    """The files of the children that live: `<folder>/<instance id>.json`. `runtime_dir` is that of this run."""

    def __init__(self, folder: Path, runtime_dir: Path) -> None:
        self._folder = folder
        self._runtime_dir = runtime_dir

    def add(self, instance_id: int, pid: int, argv: Sequence[str]) -> None:
        """Remember a child. Call it right after the start, before anything is awaited. Never raises.

        Written whole or not at all. It is not flushed to the disk: what a loss of power forgets has ended with it.
        """
        record = ChildRecord(pid, start_mark(pid) or "", list(argv), str(self._runtime_dir))
        path = self._path(instance_id)
        draft = path.with_suffix(".draft")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
            draft.replace(path)
        except OSError as failure:
            _log.warning("child %d cannot be remembered in %s: %s", pid, path, failure)

    def remove(self, instance_id: int) -> None:
        """The child is reaped. Never raises."""
        _remove(self._path(instance_id))

    def _path(self, instance_id: int) -> Path:
        return self._folder / f"{id_text(instance_id)}.json"


def end_orphans(
    folder: Path,
    runtime_bases: Iterable[Path],
    *,
    terminate_seconds: float = _TERMINATE_SECONDS,
    kill_seconds: float = _KILL_SECONDS,
) -> Sequence[int]:
    """End what the files in `folder` name and still runs, and remove them; the numbers of the processes that ended.

    Blocks for as long as that takes: meant for a thread. Call it while the data folder is held and before anything is
    started. `runtime_bases` are the folders in which a run makes its private one: one that is named, and is ours and
    private, is removed. What does not end keeps its file.
    """
    ended: list[int] = []
    bases = tuple(runtime_bases)
    # A run that was killed while it wrote one.
    for draft in folder.glob("*.draft"):
        _remove(draft)
    for path in sorted(folder.glob("*.json")):
        try:
            record = ChildRecord.read(path)
        except (OSError, ValueError, TypeError) as failure:
            _log.warning("%s tells of no child and is removed: %s", path, failure)
            _remove(path)
            continue
        found = _recognised(record)
        left = _end(found, terminate_seconds, kill_seconds)
        ended += [process.pid for process in found if process.pid not in left]
        if left:
            _log.error("processes %s of an earlier run do not end; end them by hand", sorted(left))
            continue
        _remove_runtime_dir(Path(record.runtime_dir), bases)
        _remove(path)
    if ended:
        _log.warning("ended what an earlier run of the service had left behind: processes %s", ended)
    return ended


def _recognised(record: ChildRecord) -> list[psutil.Process]:
    """The child with its whole session; or, where a wrapper script has gone, the server that it started."""
    members = list(_session(record.pid))
    for process in members:
        if process.pid == record.pid:
            is_ours = bool(record.started) and start_mark(record.pid) == record.started
            return members if is_ours and _has_flags(process, record) else []
    # As long as a session has a member the number of its leader is not given anew.
    return [process for process in members if _is_no_older(process, record) and _has_flags(process, record)]


def _session(leader: int) -> Iterator[psutil.Process]:
    """Its processes that have not ended."""
    for pid in sorted(session_members((leader,))[leader] - {os.getpid()}):
        with suppress(psutil.Error, ProcessLookupError):
            process = psutil.Process(pid)
            # Asked again: the number may have been given to another one since.
            if os.getsid(pid) == leader and _lives(process):
                yield process


def _has_flags(process: psutil.Process, record: ChildRecord) -> bool:
    """Whether its arguments end as those that were executed.

    What stands before them differs while `tether.py` has not become the server yet, and where the engine is a script.
    They hold the private address of this one life, so no other process has the same.
    """
    flags = list(record.argv[1:])
    with suppress(psutil.Error):
        return process.cmdline()[-len(flags) :] == flags
    return False


def _is_no_older(process: psutil.Process, record: ChildRecord) -> bool:
    boot, _, ticks = record.started.partition(":")
    own_boot, _, own_ticks = (start_mark(process.pid) or "").partition(":")
    return bool(ticks) and boot == own_boot and int(own_ticks) >= int(ticks)


def _end(processes: Sequence[psutil.Process], terminate_seconds: float, kill_seconds: float) -> set[int]:
    """TERM, and KILL for what is left; the numbers of those that live on. A signal never reaches a reused number."""
    for signalled, seconds in ((psutil.Process.terminate, terminate_seconds), (psutil.Process.kill, kill_seconds)):
        for process in filter(_lives, processes):
            with suppress(psutil.Error):
                signalled(process)
        until = time.monotonic() + seconds
        while any(map(_lives, processes)) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
    return {process.pid for process in processes if _lives(process)}


def _lives(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has, and waits for its parent only."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _remove_runtime_dir(folder: Path, bases: Sequence[Path]) -> None:
    """Remove the private folder of an earlier run; only one that a run can have made."""
    if not folder.name.startswith(_PREFIX) or folder.parent not in bases:
        return
    with suppress(OSError):
        found = folder.lstat()
        is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
        if is_private and found.st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as failure:
        _log.warning("%s cannot be removed: %s", path, failure)
