"""One demo in a folder at a time: the file that it holds says where it serves."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from app.cli.demo.model import DemoFailed

_LOCK_NAME = "demo.lock"
_URL_MOST_BYTES = 200


@contextlib.contextmanager
def only_demo(folder: Path) -> Iterator[Callable[[str], None]]:
    """Hold the folder while the body runs; it gets a function that is told the URL of its service.

    Raises DemoFailed, with that URL where it is known, if another demo holds it. The kernel gives it back in any case.
    """
    descriptor = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def tell(url: str) -> None:
        os.pwrite(descriptor, url.encode(), 0)

    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            url = os.read(descriptor, _URL_MOST_BYTES).decode("ascii", "replace")
            where = f"at {url}" if url else f"in {folder}"
            raise DemoFailed(
                f"a demo already runs {where}: use that one, end it with Ctrl-C, or name another folder with --folder"
            ) from None
        os.ftruncate(descriptor, 0)
        yield tell
    finally:
        os.close(descriptor)
