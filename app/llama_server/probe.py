"""Asks an engine short questions: `--version`, `--help`, `--list-devices`, and what a launch would take.

Nothing here starts a server that serves: a dry run is ended before it loads.
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from app.errors import EngineUnusable
from app.inventory.devices import Device
from app.inventory.engine import EngineFacts, EngineKind
from app.llama_server.backends import device_backends
from app.llama_server.build import build_name
from app.llama_server.children import asked_child
from app.llama_server.engine import EngineCommand
from app.llama_server.environment import child_environment
from app.llama_server.flags import ListenAddress, address_flags
from app.llama_server.help_text import parse_devices, parse_flags, parse_spec_types

# The first look at a GPU driver can take many seconds.
_DEADLINE_SECONDS = 60.0
# A Unix socket's path, its final zero included, has 108 bytes.
_SOCKET_PATH_BYTES = 107


class EngineProbe:
    """Facts about the engine that `find` names, asked once and again when its program changes.

    `rpc` lists RPC devices (`host:port`) that the engine is told of. Callers that ask at the same time share one probe.
    """

    def __init__(self, find: Callable[[], EngineCommand], rpc: Sequence[str] = ()) -> None:
        self._find = find
        self._rpc = tuple(rpc)
        self._lock = asyncio.Lock()
        self._known: tuple[tuple[str, int, int], EngineFacts] | None = None

    @property
    def known(self) -> EngineFacts | None:
        """What was last learnt, without asking."""
        return self._known[1] if self._known else None

    async def facts(self) -> EngineFacts:
        """What the engine says of itself. Raises EngineNotFound or EngineUnusable."""
        async with self._lock:
            engine = self._find()
            seen = engine.program.stat()
            identity = (str(engine.program), seen.st_mtime_ns, seen.st_size)
            if self._known is None or self._known[0] != identity:
                self._known = (identity, await self._ask(engine))
            return self._known[1]

    async def list_devices(self, env: Mapping[str, str], *, with_rpc: bool) -> tuple[Device, ...]:
        """The devices as the engine lists them now, under these variables of a profile.

        An RPC server that has a client lets another one wait: `with_rpc` leaves these devices out.
        Raises EngineNotFound or EngineUnusable.
        """
        return parse_devices(await self._devices_text(self._find(), env, self._rpc if with_rpc else ()))

    async def _devices_text(self, engine: EngineCommand, env: Mapping[str, str], rpc: Sequence[str]) -> str:
        told = ("--rpc", ",".join(rpc)) if rpc and engine.kind is not EngineKind.EMBEDDED else ()
        return await _question(engine, *told, "--list-devices", env=env)

    async def _ask(self, engine: EngineCommand) -> EngineFacts:
        try:
            # A group, so that none is still being asked when one has failed.
            async with asyncio.TaskGroup() as group:
                version = group.create_task(_question(engine, "--version"))
                help_text = group.create_task(_question(engine, "--help"))
                devices = group.create_task(self._devices_text(engine, {}, self._rpc))
                backends = group.create_task(asyncio.to_thread(device_backends, engine.program))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        flags = parse_flags(help_text.result())
        if "--model" not in flags or "--spec-type" not in flags:
            raise EngineUnusable(
                f"{engine.program} does not list --model and --spec-type in its --help: "
                "it is not a llama-server, or one too old for speculative decoding (build 11434 is known to work)"
            )
        return EngineFacts(
            kind=engine.kind,
            command=engine.command,
            build=build_name(version.result(), engine.program),
            flags=flags,
            spec_types=parse_spec_types(flags, help_text.result()),
            devices=parse_devices(devices.result()),
            device_backends=backends.result(),
        )


async def _question(engine: EngineCommand, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Standard output and error of one short run, together; `env` are variables of a profile."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as empty_folder:
        environment = child_environment(os.environ, env or {}, empty_folder=empty_folder)
        try:
            async with asked_child(*engine.command, *arguments, env=environment) as child:
                output, _ = await asyncio.wait_for(child.communicate(), _DEADLINE_SECONDS)
        except TimeoutError:
            raise EngineUnusable(
                f"{engine.program} did not answer {arguments[-1]} within {_DEADLINE_SECONDS:.0f} s"
            ) from None
        except OSError as refusal:
            raise EngineUnusable(f"{engine.program} cannot be started: {refusal.strerror}") from refusal
    text = output.decode("utf-8", "replace")
    if child.returncode != 0:
        raise EngineUnusable(f"{engine.program} {arguments[-1]} exited with {child.returncode}: {text.strip()[-500:]}")
    return text


async def dry_run(
    engine: EngineFacts,
    flags: Sequence[str],
    environment: Mapping[str, str],
    enough: Callable[[str], bool],
    *,
    launcher: Sequence[str] = (),
    folder: Path | None = None,
    limit_seconds: float,
    silence_seconds: float,
) -> int | None:
    """Let the engine measure a launch; every line of its output goes to `enough`, until that says so.

    The child is then killed and reaped, before it loads. Returns its exit code where it ended by itself, else None.
    Raises TimeoutError (`silence_seconds` is for the first line) and OSError. `launcher` are words in front of the
    engine's own, `folder` is where the private folder of the run is made.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-", dir=folder) as private:
        words = (*launcher, *engine.command, *_measuring(flags), *address_flags(_private_address(private)))
        # The key is told to nobody.
        told = child_environment(os.environ, environment, empty_folder=private, api_key=secrets.token_hex())
        async with asked_child(*words, env=told) as child:
            started = asyncio.get_running_loop().time()
            async with asyncio.timeout(min(silence_seconds, limit_seconds)) as deadline:
                async for line in _lines(child):
                    deadline.reschedule(started + limit_seconds)
                    if enough(line):
                        return None
                return await child.wait()


def _measuring(flags: Sequence[str]) -> list[str]:
    """The flags with the fit on, which measures first, and every figure of it on standard output."""
    words = list(flags)
    if "--fit" in words:
        at = words.index("--fit")
        del words[at : at + 2]
    return [*words, "--fit", "on", "--verbosity", "4", "--log-jsonl"]


def _private_address(folder: str) -> ListenAddress:
    """A socket that only we can reach; a port that nobody knows where its path would be too long."""
    path = os.path.join(folder, "s.sock")  # noqa: PTH118 - a word on a command line
    return ListenAddress(socket_path=path) if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES else ListenAddress(port=0)


async def _lines(child: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Lines as they come. One that is longer than the limit is dropped: nothing that is read here is."""
    stream = child.stdout
    while stream is not None:
        try:
            line = await stream.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\r\n")
