"""Processes that live for the length of a block, and the ports they listen on."""

import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager


def free_ports(count: int) -> list[int]:
    """Loopback ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process after the block."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 20.0) -> None:
    """Until something listens on that port. RuntimeError where the process has ended, or takes longer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError as refusal:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode} before it listened") from refusal
            if time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r} does not listen after {seconds:g} s") from refusal
            time.sleep(0.05)
        else:
            return


def allow_open_files(wanted: int) -> None:
    """Let this process and the ones it starts open so many files. RuntimeError where the system's limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise RuntimeError(
                f"{wanted} files must be open at a time, the hard limit is {hard}: raise it (ulimit -Hn)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
