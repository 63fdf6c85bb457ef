"""One server process: started, read, signalled, reaped. Nothing else in the product starts one."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.llama_server.children import signal_group, start_child

_TETHER = Path(__file__).with_name("tether.py")
_READ_BYTES = 65536
_LONGEST_LINE_BYTES = 65536
# A grandchild may hold the pipes open after the server has ended.
_LAST_WORDS_SECONDS = 0.5


def tether_words() -> tuple[str, ...]:
    """What stands before a command line so that its process ends with this one."""
    return (sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()))


class _Child(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells at once when the child is reaped: `Process.wait` waits for its pipes too, which a grandchild may hold."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self.gone = asyncio.Event()

    def process_exited(self) -> None:
        """The child is reaped."""
        super().process_exited()
        self.gone.set()


class ServerProcess:
    """A child that ends with us, whatever ends us. Its output goes line by line to `on_line`.

    `exited` is done when it is reaped and its last words are read; its result is the exit code, negative for a signal.
    """

    def __init__(
        self,
        child: asyncio.subprocess.Process,
        transport: asyncio.SubprocessTransport,
        gone: asyncio.Event,
        on_line: Callable[[str], None],
    ) -> None:
        self._child = child
        self._transport = transport
        self._gone = gone
        self._readers = [
            asyncio.create_task(_read_lines(stream, on_line)) for stream in (child.stdout, child.stderr) if stream
        ]
        self.exited = asyncio.create_task(self._reaped())

    @classmethod
    async def start(
        cls, argv: Sequence[str], env: Mapping[str, str], on_line: Callable[[str], None]
    ) -> "ServerProcess":
        """Start `argv` with exactly this environment. Raises OSError where the system refuses."""
        loop = asyncio.get_running_loop()
        transport, protocol = await start_child(
            lambda: _Child(limit=_READ_BYTES, loop=loop), *tether_words(), *argv, env=env
        )
        return cls(asyncio.subprocess.Process(transport, protocol, loop), transport, protocol.gone, on_line)

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._child.pid

    async def _reaped(self) -> int:
        await self._gone.wait()
        exit_code = self._child.returncode
        assert exit_code is not None  # noqa: S101 - that is what being gone means
        # Where the engine is a script that started the server without `exec`, the server must not outlive it.
        self._signal(signal.SIGKILL)
        done, late = await asyncio.wait(self._readers, timeout=_LAST_WORDS_SECONDS)
        for reader in late:
            reader.cancel()
        await asyncio.gather(*done, *late, return_exceptions=True)
        # Our ends of the pipes, which would stay open as long as a grandchild holds the others.
        self._transport.close()
        return exit_code

    async def end(self, terminate_seconds: float, kill_seconds: float) -> int:
        """TERM, TERM again, KILL, each after its deadline; the exit code.

        With a request in flight the first TERM alone would wait for it without end; the second makes the engine quit.
        """
        for seconds in (terminate_seconds, kill_seconds):
            self._signal(signal.SIGTERM)
            await asyncio.wait({self.exited}, timeout=seconds)
            if self.exited.done():
                return self.exited.result()
        self.kill()
        await asyncio.wait({self.exited})
        return self.exited.result()

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole group that the child leads."""
        signal_group(self._child.pid, number)


async def _read_lines(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    rest = b""
    while chunk := await stream.read(_READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            on_line(line.decode("utf-8", "replace").rstrip("\r"))
    if rest:
        on_line(rest.decode("utf-8", "replace"))
