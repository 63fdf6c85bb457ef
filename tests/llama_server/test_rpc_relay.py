"""The relay in front of a server that, as the real one, would die of an answer nobody takes."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from app.llama_server.rpc_relay import relayed


class SlowServer:
    """Takes one question, answers when told to, in two parts; `outcome` is how that went."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not await reader.read(4):
                # Somebody looked whether there is a server.
                return
            self.asked.set()
            await self.may_answer.wait()
            for part in (b"first", b"second"):
                writer.write(part)
                await writer.drain()
                # The other side's reset, if there is one, has come when this has.
                await asyncio.sleep(0.05)
            rest = await reader.read()
            self.outcome.set_result("answered" if rest == b"" else "asked more")
        except ConnectionError as failure:
            self.outcome.set_result(type(failure).__name__)
        finally:
            writer.close()


@asynccontextmanager
async def slow_server() -> AsyncIterator[tuple[SlowServer, str]]:
    server = SlowServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    yield server, f"{host}:{port}"
    listener.close()


async def ask(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"ask!")
    await writer.drain()
    return reader, writer


async def ask_and_vanish(server: SlowServer, address: str) -> None:
    """As an engine that is killed while it waits for the answer."""
    _, writer = await ask(address)
    await server.asked.wait()
    writer.transport.abort()
    server.may_answer.set()


async def test_without_a_relay_the_answer_finds_nobody() -> None:
    async with slow_server() as (server, address):
        await ask_and_vanish(server, address)
        assert await asyncio.wait_for(server.outcome, 10) in ("ConnectionResetError", "BrokenPipeError")


async def test_behind_the_relay_the_answer_is_taken() -> None:
    async with slow_server() as (server, address):
        async with relayed(("--rpc", address)) as flags:
            await ask_and_vanish(server, flags[1])
        assert await asyncio.wait_for(server.outcome, 10) == "answered"


def test_nothing_is_raised_into_the_loop_that_the_service_runs_on() -> None:
    unforeseen: list[dict[str, object]] = []

    async def vanish() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unforeseen.append(context))
        async with slow_server() as (server, address):
            async with relayed(("--rpc", address)) as flags:
                await ask_and_vanish(server, flags[1])
            assert await asyncio.wait_for(server.outcome, 10) == "answered"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(vanish())
    # What a task raises that nobody waits for is told when the task goes.
    gc.collect()
    assert unforeseen == []


async def test_bytes_pass_both_ways() -> None:
    async with slow_server() as (server, address), relayed(("--rpc", address)) as flags:
        reader, writer = await ask(flags[1])
        server.may_answer.set()
        assert await reader.readexactly(11) == b"firstsecond"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert await server.outcome == "answered"


async def test_every_mention_of_a_server_is_readdressed() -> None:
    async with slow_server() as (_, first), slow_server() as (_, second):
        given = ("--rpc", f"{first},{second}", "--override-tensor", f"a=CPU,b=RPC0[{second}]", "--alias", "x")
        async with relayed(given) as flags:
            relays = flags[1].split(",")
            assert flags[3] == f"a=CPU,b=RPC0[{relays[1]}]"
            assert len({first, second, *relays}) == 4
            assert (*flags[:1], *flags[4:]) == ("--rpc", "--alias", "x")


async def test_flags_without_servers_stay() -> None:
    async with relayed(("--device", "CUDA0")) as flags:
        assert flags == ("--device", "CUDA0")


async def test_a_server_that_is_not_there() -> None:
    async with slow_server() as (_, address):
        pass
    with pytest.raises(OSError, match="onnect"):
        async with relayed(("--rpc", address)):
            pytest.fail("it was reached")
