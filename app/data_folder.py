"""The data folder, and a database that lies elsewhere, belong to one service at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from app.errors import DataFolderInUse

_LOCK_NAME = "paceline.lock"


@contextlib.contextmanager
def held(folder: Path, database_file: Path | None = None) -> Iterator[None]:
    """Hold the folder while the body runs, and a database file that is not in it.

    Raises DataFolderInUse, naming the process that has one of them. The kernel gives the locks back when the process
    ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(folder / _LOCK_NAME, folder, "PACELINE_DATA_DIR"))
        # Through whichever link: it is the file that has one service.
        database_file = None if database_file is None else database_file.resolve()
        if database_file is not None and database_file.parent != folder.resolve():
            database_file.parent.mkdir(parents=True, exist_ok=True)
            lock = database_file.with_name(f"{database_file.name}.lock")
            stack.enter_context(_locked(lock, database_file, "PACELINE_DATABASE_URL"))
        yield


@contextlib.contextmanager
def _locked(lock: Path, shown: Path, variable: str) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            raise DataFolderInUse(
                f"another service (process {holder or 'unknown'}) runs on {shown}: stop it, or give this one a "
                f"{variable} of its own",
                folder=str(shown),
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
