"""The engine as its own witness: the very flags of a launch, measured by the engine before it loads a weight."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from app.errors import ModelFileError
from app.inventory.devices import Device
from app.inventory.engine import EngineFacts, EngineKind
from app.inventory.model_paths import part_paths
from app.launch.witness import Outcome, Unwitnessed, Witness, outcome_of
from app.llama_server.dry_run_output import DryRunOutput
from app.llama_server.probe import dry_run
from app.llama_server.rpc_relay import relayed

_LIMIT_SECONDS = 30.0
# An engine greets within milliseconds, unless it waits for an RPC server, which serves one client at a time.
_RPC_SILENCE_SECONDS = 5.0
_REMEMBERED = 64

_SERVICE_ENDS = Unwitnessed("service-ends", "No dry run: the service is ending.")

_Key: TypeAlias = tuple[object, ...]


class DryRuns:
    """Asks for dry runs, one at a time; askers of the same launch share one, and its witness is remembered.

    `launcher` are the words that start the engine tied to this process's life, `folder` a short private folder for
    its socket. Nothing that goes wrong is raised: the outcome says it.
    """

    def __init__(
        self,
        *,
        launcher: Sequence[str] = (),
        folder: Path | None = None,
        limit_seconds: float = _LIMIT_SECONDS,
        rpc_silence_seconds: float = _RPC_SILENCE_SECONDS,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._launcher = tuple(launcher)
        self._folder = folder
        self._limit_seconds = limit_seconds
        self._rpc_silence_seconds = rpc_silence_seconds
        self._remembered = remembered
        self._known: OrderedDict[_Key, Witness] = OrderedDict()
        self._running: dict[_Key, asyncio.Task[Outcome]] = {}
        # Each run opens the devices, and an RPC server has room for one client.
        self._turn = asyncio.Lock()
        self._is_ending = False

    async def witness(
        self, engine: EngineFacts, flags: Sequence[str], devices: Sequence[Device], environment: Mapping[str, str]
    ) -> Outcome:
        """What the engine says of a launch with these flags and this profile's environment, on these devices."""
        if (cannot := _cannot(engine)) is not None:
            return cannot
        key = await asyncio.to_thread(_key, engine, tuple(flags), devices, environment)
        if self._is_ending:
            return _SERVICE_ENDS
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known
        run = self._running.get(key)
        if run is None:
            run = asyncio.create_task(self._ask(key, engine, tuple(flags), dict(environment)))
            self._running[key] = run
            run.add_done_callback(lambda _: self._running.pop(key, None))
        # An asker that leaves does not end the run of the others.
        await asyncio.wait((run,))
        # Where it had not begun, it could not say so itself.
        return _SERVICE_ENDS if run.cancelled() else run.result()

    def end(self) -> None:
        """The service ends: who waits for a run is told that there is none."""
        self._is_ending = True
        for run in self._running.values():
            run.cancel()

    async def close(self) -> None:
        """End what still runs."""
        running = list(self._running.values())
        self.end()
        await asyncio.gather(*running, return_exceptions=True)

    async def _ask(
        self, key: _Key, engine: EngineFacts, flags: tuple[str, ...], environment: Mapping[str, str]
    ) -> Outcome:
        said = DryRunOutput()
        # A profile that leaves the layout to the engine is known when the engine has chosen it.
        fit_decides = "--fit" in flags and flags[flags.index("--fit") + 1] == "on"

        def enough(line: str) -> bool:
            said.add(line)
            return said.fit_ended if fit_decides else said.measured

        waits_for_rpc = "--rpc" in flags
        try:
            async with self._turn, relayed(flags) as relayed_flags:
                exit_code = await dry_run(
                    engine,
                    relayed_flags,
                    environment,
                    enough,
                    launcher=self._launcher,
                    folder=self._folder,
                    limit_seconds=self._limit_seconds,
                    silence_seconds=self._rpc_silence_seconds if waits_for_rpc else self._limit_seconds,
                )
        except TimeoutError:
            return _too_late(said, self._limit_seconds, waits_for_rpc)
        except asyncio.CancelledError:
            if not self._is_ending:
                raise
            return _SERVICE_ENDS
        except OSError as failure:
            return Unwitnessed("not-started", f"No dry run: the engine or an RPC server cannot be reached: {failure}.")
        outcome = outcome_of(said, exit_code, flags)
        if isinstance(outcome, Witness):
            self._remember(key, outcome)
        return outcome

    def _remember(self, key: _Key, witness: Witness) -> None:
        self._known[key] = witness
        while len(self._known) > self._remembered:
            self._known.popitem(last=False)


def _cannot(engine: EngineFacts) -> Unwitnessed | None:
    if engine.kind is EngineKind.EMBEDDED:
        return Unwitnessed("engine-embedded", "The embedded engine does not measure a launch without loading it.")
    for flag in ("--fit", "--log-jsonl"):
        if flag not in engine.flags:
            return Unwitnessed("engine-too-old", f"This build has no {flag}, so it does not tell what it measures.")
    return None


def _too_late(said: DryRunOutput, limit_seconds: float, waits_for_rpc: bool) -> Unwitnessed:
    if waits_for_rpc and not said.heard:
        return Unwitnessed(
            "rpc-busy",
            "No dry run: the engine got no answer from an RPC server, which serves one client at a time and is busy "
            "while another server uses it.",
        )
    return Unwitnessed("time-limit", f"The engine did not finish its dry run within {limit_seconds:g} s.")


def _key(
    engine: EngineFacts, flags: tuple[str, ...], devices: Sequence[Device], environment: Mapping[str, str]
) -> _Key:
    """What the answer depends on: the engine, its flags and environment, the files they name, the devices.

    What is free on a device changes all the time and matters only where the engine decides by it: without a stated
    split the layers follow the free memory.
    """
    free = _follows_free_memory(flags, devices)
    machine = tuple((device.name, device.total_bytes, device.free_bytes if free else None) for device in devices)
    return (
        tuple(engine.command), engine.build, flags, tuple(sorted(environment.items())), machine,
        tuple(_identity(part) for word in flags if word.startswith("/") for part in _parts(Path(word))),
    )  # fmt: skip


def _follows_free_memory(flags: tuple[str, ...], devices: Sequence[Device]) -> bool:
    chosen = flags[flags.index("--device") + 1].split(",") if "--device" in flags else devices
    fit = "--fit" in flags and flags[flags.index("--fit") + 1] == "on"
    return fit or (len(chosen) > 1 and "--tensor-split" not in flags)


def _parts(path: Path) -> tuple[Path, ...]:
    """Every file of a split set: the flags name only the first."""
    try:
        return part_paths(path)
    except ModelFileError:
        return (path,)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size
