"""Ties the program it becomes to the life of its parent: run as `python -I -S tether.py PARENT_PID PROGRAM ARGS…`.

A preparation between fork and exec is not safe in a process with threads, so this small program asks the kernel for
the parent-death signal and then becomes the server; its pid stays the same. The kernel sends the signal also when the
parent is killed with SIGKILL. On systems without prctl the server just starts.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, make sure that the parent still lives, become the program."""
    parent_pid, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:
            # The parent died before the request: the signal will never come.
            raise SystemExit(1)
    try:
        os.execvp(program[0], program)  # noqa: S606 - starting a program is what it is for
    except OSError as failure:
        sys.stderr.write(f"error: cannot start {program[0]}: {failure.strerror}\n")
        raise SystemExit(127) from failure


if __name__ == "__main__":
    main()
