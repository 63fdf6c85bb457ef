"""Real child processes."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.instances.process import ServerProcess

ENV = {"PATH": os.environ["PATH"]}
TETHER = Path(__file__).parent.parent.parent / "app" / "instances" / "tether.py"


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", code]


class Lines(list[str]):
    """What a child said, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = asyncio.Event()

    def append(self, line: str) -> None:
        super().append(line)
        self._heard.set()

    async def said(self, text: str) -> None:
        async with asyncio.timeout(10):
            while text not in self:
                self._heard.clear()
                await self._heard.wait()


async def start(code: str, lines: list[str]) -> ServerProcess:
    return await ServerProcess.start(python(code), ENV, lines.append)


async def test_lines_of_both_streams_and_the_exit_code() -> None:
    lines = Lines()
    child = await start(
        "import sys; print('out'); print('err', file=sys.stderr); print('last', end=''); sys.exit(3)", lines
    )
    assert await child.exited == 3
    assert sorted(lines) == ["err", "last", "out"]


async def test_output_without_line_feeds_and_with_bad_bytes_is_kept_in_bounds() -> None:
    lines = Lines()
    child = await start("import sys; sys.stdout.buffer.write(b'x' * 300_000 + b'\\n\\xff\\n')", lines)
    assert await child.exited == 0
    assert "".join(lines[:-1]) == "x" * 300_000
    assert lines[-1] == "\ufffd"
    assert max(map(len, lines)) <= 2 * 65536


async def test_the_environment_is_exactly_what_was_given() -> None:
    lines = Lines()
    code = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))"
    child = await ServerProcess.start(python(code), {"ONLY": "this"}, lines.append)
    assert await child.exited == 0
    assert lines == ["['ONLY']"]


async def test_the_first_term_ends_a_well_behaved_child() -> None:
    lines = Lines()
    child = await start("import signal; print('up', flush=True); signal.pause()", lines)
    await lines.said("up")
    assert await child.end(10, 10) == -signal.SIGTERM


async def test_the_second_term_comes_after_its_deadline() -> None:
    lines = Lines()
    code = (
        "import signal, sys\n"
        "seen = []\n"
        "def on_term(*_):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 2: sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, on_term)\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    child = await start(code, lines)
    await lines.said("up")
    assert await child.end(0.2, 10) == 1


async def test_kill_ends_what_ignores_term() -> None:
    lines = Lines()
    child = await start(
        "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()", lines
    )
    await lines.said("up")
    assert await child.end(0.1, 0.1) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_signals_to_an_ended_child_are_harmless() -> None:
    child = await start("pass", [])
    await child.exited
    child.kill()
    assert await child.end(1, 1) == 0


async def test_a_grandchild_that_holds_the_pipes_does_not_hold_up_the_end() -> None:
    lines = Lines()
    code = (
        "import subprocess, sys\n"
        "held = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=True)\n"
        "print(held.pid, flush=True)\n"
        "sys.exit(7)"
    )
    child = await start(code, lines)
    try:
        async with asyncio.timeout(10):
            assert await child.exited == 7
    finally:
        os.kill(int(lines[0]), signal.SIGKILL)


async def test_a_program_that_is_not_there() -> None:
    lines = Lines()
    child = await ServerProcess.start(["/nonexistent/llama-server"], ENV, lines.append)
    assert await child.exited == 127
    assert lines == ["error: cannot start /nonexistent/llama-server: No such file or directory"]


def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    """The parent-death signal, with a real parent that gets SIGKILL."""
    parent = subprocess.Popen(
        python(
            "import os, subprocess, sys, signal\n"
            f"tether = [sys.executable, '-I', '-S', {str(TETHER)!r}]\n"
            "child = subprocess.Popen([*tether, str(os.getpid()), 'sleep', '600'])\n"
            "print(child.pid, flush=True)\n"
            "signal.pause()"
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    # A pidfd becomes readable when its process has ended.

    readable, _, _ = select.select([child], [], [], 10)
    os.close(child)
    assert readable


def test_a_tether_whose_parent_is_gone_starts_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(TETHER), "1" if os.getpid() != 1 else "2", "echo", "started"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
