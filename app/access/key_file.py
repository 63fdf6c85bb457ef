"""A file with a key for the settings, made on the first start of a service that shall never have a default one."""

import contextlib
import os
from pathlib import Path

from app.access.secret import new_secret
from app.errors import PacelineError


class KeyFileUnwritable(PacelineError):
    """The file of a key cannot be made; the message says why."""

    code = "key-file-unwritable"


def ensure_key_file(path: Path, *, group_reads: bool = False) -> bool:
    """A new key in `path`, unless something is there; says whether one was made. Raises KeyFileUnwritable.

    The file is whole from the moment it has its name, and of two that make it at once one wins. Its owner reads it and,
    where `group_reads`, its group.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists():
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(part, 0o640 if group_reads else 0o600)
        try:
            # A link, because it does not replace: a key that is in use stays.
            path.hardlink_to(part)
        except FileExistsError:
            return False
        finally:
            part.unlink()
    except OSError as failure:
        raise KeyFileUnwritable(
            f"no key can be put into {path}: {failure.strerror or failure}; whoever runs this must be able to write "
            "there"
        ) from failure
    return True


def _write(part: Path, mode: int) -> None:
    # A run that was killed may have left its part, half written, under a number that comes again.
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        _, secret = new_secret()
        file.write(f"{secret}\n")
        file.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
