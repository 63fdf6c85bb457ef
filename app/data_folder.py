"""The data folder belongs to one service at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from app.errors import DataFolderInUse

_LOCK_NAME = "paceline.lock"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder while the body runs. Raises DataFolderInUse, naming the process that has it.

    The kernel gives the lock back when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            raise DataFolderInUse(
                f"another service (process {holder or 'unknown'}) runs on {folder}: stop it, or give this one a "
                "PACELINE_DATA_DIR of its own",
                folder=str(folder),
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
