"""A thread that looks after something, and otherwise sleeps."""

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Watch:
    """Calls `look` when woken, and again after as many seconds as it answered; where that was None, when woken."""

    def __init__(self, name: str, look: Callable[[], float | None]) -> None:
        self._look = look
        self._woken = threading.Event()
        self._is_closing = False
        # A daemon, so that a start-up that fails half way can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, with a first look."""
        self._thread.start()

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    def close(self) -> None:
        """End the thread, and wait for it."""
        self._is_closing = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closing:
            pause_seconds: float | None = 1.0
            try:
                pause_seconds = self._look()
            except Exception:
                _log.exception("%s failed, and tries again", self._thread.name)
            self._woken.wait(pause_seconds)
            self._woken.clear()
