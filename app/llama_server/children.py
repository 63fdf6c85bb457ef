"""Children that are asked something and do not outlive the question."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

_P = TypeVar("_P", bound=asyncio.SubprocessProtocol)

_LONGEST_LINE_BYTES = 1 << 20


async def start_child(
    make_protocol: Callable[[], _P], *words: str, env: Mapping[str, str], joins_errors: bool = False
) -> tuple[asyncio.SubprocessTransport, _P]:
    """Start a program with exactly this environment, as the leader of a group of its own. Raises OSError.

    One that is being started when its starter is cancelled is ended: nobody else would know of it.
    """
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            make_protocol,
            *words,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if joins_errors else asyncio.subprocess.PIPE,
            # A Ctrl-C at the terminal is for the service, which then ends them in order.
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            transport, _ = await starting
            signal_group(transport.get_pid(), signal.SIGKILL)
            transport.close()
        raise


@asynccontextmanager
async def asked_child(*words: str, env: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program with its output and its errors in `stdout`; at the end of the block it is killed with all its group,
    and reaped. Raises OSError where it cannot be started.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await start_child(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=_LONGEST_LINE_BYTES, loop=loop),
        *words,
        env=env,
        joins_errors=True,
    )
    child = asyncio.subprocess.Process(transport, protocol, loop)
    try:
        yield child
    finally:
        # The whole group: the engine may be a wrapper's child.
        if child.returncode is None:
            signal_group(child.pid, signal.SIGKILL)
        # Our end of the pipe, which would stay open as long as a grandchild holds the other.
        transport.close()
        await child.wait()


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal all that a child leads, if there is anybody left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
