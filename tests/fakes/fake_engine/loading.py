"""The load of a model as the scenario wants it: how long, how much memory, and where it goes wrong."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .command_line import Options
from .identity import Identity
from .scenario import Events, Scenario

Log = Callable[[str, str], None]

_STEPS = 20
_GRANDCHILD_SECONDS = "60"
# What a CUDA build says when a card is full: plain text of ggml, then the loader's own lines.
_CUDA_OUT_OF_MEMORY: Mapping[str, Any] = {
    "stderr": [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 17594.93 MiB on device 0: cudaMalloc failed: "
        "out of memory",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 18449570816",
        "0.04.211.018 E llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "0.04.211.300 E llama_model_load_from_file_impl: failed to load model",
        "0.04.260.112 E srv  llama_server: exiting due to model loading error",
    ],
    "exit_code": 1,
}


class Load:
    """One load. What it takes it keeps."""

    def __init__(self, options: Options, scenario: Scenario, identity: Identity, events: Events, log: Log) -> None:
        self._options = options
        self._scenario = scenario
        self._identity = identity
        self._events = events
        self._log = log
        self._memory: list[bytearray] = []
        self._children: list[subprocess.Popen[bytes]] = []

    async def run(self) -> int | None:
        """The exit code when loading fails, else None."""
        model, draft = self._options.value("--model"), self._options.value("--model-draft")
        self._log("I", "srv  llama_server: initializing ...")
        self._log("I", f"srv    load_model: loading model '{model}'")
        for line in self._scenario.load_stderr:
            print(line, file=sys.stderr, flush=True)
        self._leave_children()
        if (failed := await self._read()) is not None:
            return failed
        for path in filter(None, (model, draft)):
            if not Path(path).is_file():
                self._log("E", f"gguf_init_from_file: failed to open GGUF file '{path}' "
                               "(No such file or directory)")  # fmt: skip
                self._log("E", f"srv    load_model: failed to load model, '{path}'")
                self._log("E", "srv  llama_server: exiting due to model loading error")
                return 1
        self._log("I", "cmn          init: llama threadpool init, n_threads = 2")
        self._tell_the_rest(draft)
        return None

    async def _read(self) -> int | None:
        """Pass the time, take the memory; the exit code of a fault."""
        scenario = self._scenario
        fault = _CUDA_OUT_OF_MEMORY if scenario.cuda_out_of_memory else scenario.fail_during_load
        for step in range(_STEPS + 1):
            if scenario.stall_at is not None and step >= scenario.stall_at * _STEPS:
                await self._stall()
            if fault and step >= scenario.fail_at * _STEPS:
                return await _fail(fault)
            if step < _STEPS:
                # Zeros would not be resident.
                self._memory.append(bytearray(b"x") * (scenario.load_grows_bytes // _STEPS))
                if scenario.load_seconds:
                    await asyncio.sleep(scenario.load_seconds / _STEPS)
        return None

    async def _stall(self) -> None:
        self._events.add("stalled")
        if self._scenario.stall_computes:
            threading.Thread(target=_compute, daemon=True).start()
        await asyncio.Event().wait()

    def _leave_children(self) -> None:
        """Children that hold our pipes, or that nobody reaps."""
        if mode := self._scenario.leaves_grandchild:
            child = subprocess.Popen(["sleep", _GRANDCHILD_SECONDS], start_new_session=mode == "session")  # noqa: S607
            self._children.append(child)
            self._events.add("grandchild", pid=child.pid)
        if self._scenario.leaves_zombie:
            ended = subprocess.Popen(["true"])  # noqa: S607
            os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
            self._children.append(ended)
            self._events.add("zombie", pid=ended.pid)

    def _tell_the_rest(self, draft: str) -> None:
        identity = self._identity
        if draft:
            self._log("I", f"common_speculative_init_result: loading draft model '{draft}'")
        shape = f"n_slots = {identity.slots}, n_ctx_slot = {identity.n_ctx_slot}"
        unified = str(identity.unified).lower()
        self._log("I", f"srv    load_model: initializing, {shape}, kv_unified = '{unified}'")
        if self._options.number("--verbosity", 3) >= 4 and identity.speculative:
            for method in identity.methods:
                self._log("I", f"spec common_specu: adding speculative implementation '{method}'")
            self._log("I", "srv    load_model: speculative decoding context initialized")


async def _fail(fault: Mapping[str, Any]) -> int:
    for line in fault.get("stderr", ()):
        print(line, file=sys.stderr, flush=True)
    if "signal" in fault:
        os.kill(os.getpid(), signal.Signals[fault["signal"]])
        await asyncio.sleep(60)
    return int(fault.get("exit_code", 1))


def _compute() -> None:
    while True:
        pass
