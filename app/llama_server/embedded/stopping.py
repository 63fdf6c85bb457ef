"""How the process ends once it serves.

The destructor of the package's server stops the engine just as llama-server stops: generation
ends at once, then it waits for the clients, and it holds Python's lock all the while. So neither
the second signal nor the deadline can be handled in Python; both are left to the C library.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import time
from typing import NoReturn

STOP_SECONDS = 45.0
"""Past llama-server's ping interval of 30 s, after which streams notice the stop."""

_LOG_SECONDS = 0.03
"""The engine writes its log from a thread of its own, which has lines left."""

_SECOND = b"Received second interrupt, terminating immediately."
_LINE_BUFFERED = 1  # _IOLBF
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def wait_for_signal() -> None:
    """Returns at the first SIGTERM or SIGINT. From this call on they no longer end the process."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    os.read(reading, 1)


def stop(servers: list[object], deadline_seconds: float = STOP_SECONDS) -> NoReturn:
    """Destroys the only server in the list, and ends the process: 0, or 1 by a second signal or too late."""
    _exit_at_next_signal()
    faulthandler.dump_traceback_later(deadline_seconds, exit=True)
    servers.clear()
    time.sleep(_LOG_SECONDS)
    os._exit(0)  # what is registered for `exit` is for the second signal


def _exit_at_next_signal() -> None:
    """Makes the next signal print a line and exit with 1, without any Python.

    The C library's `exit` is itself the signal handler. It calls what was registered, the last
    one first: `puts` with the message, on a stdout that is stderr by now and written by lines, and
    then `_exit` with 1, before any destructor.
    """
    library = ctypes.CDLL(None)
    sys.stdout.flush()
    os.dup2(2, 1)
    library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, _LINE_BUFFERED, 1024)
    for function, argument in ((library._exit, ctypes.c_void_p(1)), (library.puts, _SECOND)):
        library.__cxa_atexit(function, argument, None)
    for number in _SIGNALS:
        library.signal(ctypes.c_int(number), library.exit)
