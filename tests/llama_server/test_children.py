"""Children that are asked something: none outlives its asker, whenever that leaves."""

import asyncio
import os
import sys

import pytest

from app.llama_server.children import asked_child, start_child

PYTHON = (sys.executable, "-I", "-S", "-c")
WAITER = "import signal; print('here', flush=True); signal.pause()"
# Its child is of another group, and holds the pipe.
LEAVES_A_GRANDCHILD = (
    "import signal, subprocess, sys;"
    "waits = 'import signal; signal.alarm(3); signal.pause()';"
    "subprocess.Popen([sys.executable, '-I', '-S', '-c', waits], start_new_session=True);"
    "print('here', flush=True); signal.pause()"
)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("program", [WAITER, LEAVES_A_GRANDCHILD], ids=["alone", "with a grandchild"])
async def test_it_ends_with_the_block(program: str) -> None:
    async with asyncio.timeout(2.5):
        async with asked_child(*PYTHON, program, env={}) as child:
            assert child.stdout is not None
            assert await child.stdout.readline() == b"here\n"
        assert not is_there(child.pid)


async def test_what_it_says_is_heard_to_its_end() -> None:
    async with asked_child(*PYTHON, "import sys; print(1); print(2, file=sys.stderr)", env={}) as child:
        output, _ = await child.communicate()
    assert sorted(output.split()) == [b"1", b"2"]
    assert child.returncode == 0


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        async with asked_child("/nowhere/at-all", env={}):
            raise AssertionError("it runs")


@pytest.mark.parametrize("turns", range(6))
async def test_one_whose_asker_leaves_while_it_starts_is_ended(turns: int) -> None:
    class Seen(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.ended = asyncio.Event()

        def process_exited(self) -> None:
            self.ended.set()

    made: list[Seen] = []

    def make() -> Seen:
        made.append(Seen())
        return made[-1]

    starting = asyncio.create_task(start_child(make, *PYTHON, WAITER, env={}))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    try:
        transport, _ = await starting
    except asyncio.CancelledError:
        if made:
            await asyncio.wait_for(made[0].ended.wait(), 5)
    else:  # it was there before
        transport.close()
        await asyncio.wait_for(made[0].ended.wait(), 5)
