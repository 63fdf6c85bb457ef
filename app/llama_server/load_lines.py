"""Reads the lines of a load, one by one, into facts. Pure.

The engine tells its buffers at `--verbosity 4`: a block for the target, the same again for a draft model, and a context
alone for multi-token prediction. A context reserves its compute buffers again when something changes, and then the
earlier ones are gone. Nothing is read once the model is loaded: from then on a request can put lines of its own into
the output (the engine prints a grammar that it cannot parse as it is).
"""

import re
from collections.abc import Callable

from app.llama_server.load_facts import HOST, Buffer, BufferKind, LoadFacts, Part
from app.llama_server.load_parts import HeardModel, HeardProjector

# The engine cuts the names of its server functions to twelve characters.
_LINE = re.compile(
    r"(?:\d+\.\d\d\.\d{3}\.\d{3} [IWE] )?(?:(?:srv|cmn|spec|slot) +)?(?P<function>[a-z]\w*): +(?P<text>.*)"
)
_BUFFER = re.compile(
    r"(?P<name>\S+) +(?P<kind>model|KV|RS|DSV4 .*state|compute|output) buffer size = +(?P<mib>\d+\.\d+) MiB"
)
_KINDS = {
    "model": BufferKind.MODEL,
    "KV": BufferKind.KV,
    "compute": BufferKind.COMPUTE,
    "output": BufferKind.OUTPUT,
}
_CACHE = re.compile(r"size = +(?P<mib>\d+\.\d+) MiB \( *\d+ cells, +(?P<layers>\d+) layers")
_DEVICE = re.compile(r"(?:using device |- )(?P<name>\S+) *(?:\(|: )(?P<description>[^()]*?) ?[()]")
_REMOTE = re.compile(r"RPC(?P<index>\d+)\[(?P<address>.+)\]")
_SLOTS = re.compile(r"n_slots = (?P<slots>\d+), n_ctx_slot = (?P<context>\d+), kv_unified = '(?P<unified>\w+)'")
_ADDED = re.compile(r"adding speculative implementation '(?P<method>[\w-]+)'")
_LENGTH = re.compile(r"- .*\b(?:n_max|n_draft|size_m|size_value)=(?P<length>\d+)")
_CLAMPED = re.compile(r".*clamping to (?P<length>\d+)")
_NO_METHODS = (
    "no implementations specified",
    "failed to initialize speculative decoding context",
    "speculative decoding not supported",
)
_PROJECTOR_DEVICE = re.compile(r"CLIP using (?P<name>\S+) backend")
_PROJECTOR_WEIGHTS = re.compile(r"model size: +(?P<mib>\d+\.\d+) MiB")
_PROJECTOR_FUNCTIONS = ("clip_ctx", "load_hparams", "alloc_compute_meta", "reserve_compute_meta")
_CACHE_FUNCTIONS = ("llama_kv_cache", "llama_memory")


class LoadLines:
    """Follows one load until it `is_complete`. A line that says nothing of it costs one match and some comparisons."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._readers: dict[str, Callable[[str], None]] = {
            "common_param": self._of_device,
            "llama_prepare_model_devices": self._of_device,
            "load_model": self._of_server,
            "print_info": self._of_model,
            "load_tensors": self._of_weights,
            "llama_context": self._keep,
            "sched_reserve": self._of_buffers,
            "llama_server": self._of_end,
            "init": self._of_end,
            **dict.fromkeys(_PROJECTOR_FUNCTIONS, self._of_projector),
        }
        self.is_complete = False
        self._begin()

    def _begin(self) -> None:
        self._part = Part.TARGET
        self._heard = {part: HeardModel(part) for part in Part}
        self._projector = HeardProjector()
        self._slots: tuple[int, int, bool] | None = None
        self._methods: list[str] | None = None
        self._lengths: dict[str, int] = {}
        self._skips_tensors = False
        self._lost_pipelining = False

    @property
    def facts(self) -> LoadFacts:
        """What was said so far."""
        slots, context, unified = self._slots or (None, None, None)
        models = [heard for heard in self._heard.values() if heard.buffers]
        return LoadFacts(
            buffers=(*(buffer for heard in models for buffer in heard.buffers), *self._projector.buffers()),
            caches=tuple(cache for heard in models for cache in heard.caches),
            block_counts={heard.part: heard.blocks for heard in models if heard.blocks is not None},
            uneven=frozenset(heard.part for heard in models if heard.is_uneven),
            slots=slots,
            context_per_slot=context,
            unified_kv=unified,
            methods=None if self._methods is None else tuple(self._methods),
            draft_lengths=dict(self._lengths),
            skips_tensors=self._skips_tensors,
            lost_pipelining=self._lost_pipelining,
        )

    def add(self, line: str) -> None:
        """Take in one line, without its line feed."""
        if self.is_complete:
            return
        match = _LINE.match(line)
        if match is None:
            self._skips_tensors |= "model has unused tensor " in line and self._part is Part.TARGET
            return
        function, text = match["function"], match["text"]
        if read := self._readers.get(function):
            read(text)
        elif function.startswith(_CACHE_FUNCTIONS):
            self._of_cache(text, is_recurrent=function == "llama_memory_recurrent")
        elif function.startswith("common_specu"):
            self._of_speculation(text)

    def _of_device(self, text: str) -> None:
        if device := _DEVICE.match(text):
            self._addresses[device["name"]] = device["description"]

    def _of_model(self, text: str) -> None:
        self._heard[self._part].describe(text)

    def _of_end(self, text: str) -> None:
        self.is_complete = text == "model loaded"

    def _of_server(self, text: str) -> None:
        if text.startswith("loading model '"):
            self._begin()
        elif slots := _SLOTS.search(text):
            self._slots = int(slots["slots"]), int(slots["context"]), slots["unified"] == "true"
        elif text.startswith(_NO_METHODS):
            self._without_methods()

    def _of_weights(self, text: str) -> None:
        if not text.startswith("loading model tensors"):
            self._keep(text)
            return
        # The engine can load without memory first, to measure, and says the same.
        for part in Part if self._part is Part.TARGET else (self._part,):
            self._heard[part].forget()
        self._skips_tensors &= self._part is not Part.TARGET

    def _of_buffers(self, text: str) -> None:
        if text.startswith("reserving"):
            self._heard[self._part].forget_compute()
        elif "retrying without pipeline parallelism" in text:
            self._lost_pipelining = True
        else:
            self._keep(text)

    def _of_cache(self, text: str, *, is_recurrent: bool) -> None:
        if size := _CACHE.match(text):
            kind = BufferKind.RECURRENT if is_recurrent else BufferKind.KV
            self._heard[self._part].close_cache(kind, int(size["layers"]), _bytes(size["mib"]))
        else:
            self._keep(text)

    def _of_speculation(self, text: str) -> None:
        if text.startswith("loading draft model"):
            self._part = Part.DRAFT
        elif text.startswith("creating MTP draft context"):
            self._part = Part.MTP
        elif text.startswith(_NO_METHODS):
            self._without_methods()
        elif added := _ADDED.match(text):
            self._methods = [*(self._methods or ()), added["method"]]
        elif self._methods and (told := _LENGTH.match(text) or _CLAMPED.match(text)):
            self._lengths[self._methods[-1]] = int(told["length"])

    def _without_methods(self) -> None:
        """A draft that does not come up is freed, and the server goes on without it."""
        self._methods, self._lengths = [], {}
        for part in (Part.DRAFT, Part.MTP):
            self._heard[part].forget()

    def _of_projector(self, text: str) -> None:
        if device := _PROJECTOR_DEVICE.match(text):
            self._projector.begin(self._place(device["name"]))
        elif weights := _PROJECTOR_WEIGHTS.match(text):
            self._projector.weights[-1:] = [_bytes(weights["mib"])]
        elif (found := _BUFFER.match(text)) and self._projector.compute:
            self._projector.compute[-1][self._place(found["name"])] = _bytes(found["mib"])

    def _keep(self, text: str) -> None:
        if found := _BUFFER.match(text):
            kind = _KINDS.get(found["kind"], BufferKind.RECURRENT)
            name = found["name"]
            buffer = Buffer(self._part, kind, self._place(name), _bytes(found["mib"]), name.endswith("_Mapped"))
            self._heard[self._part].keep(buffer)

    def _place(self, name: str) -> str:
        """Where a buffer of that name is. The engine spells those of RPC servers `RPC0[address]`."""
        if name.startswith("CPU") or name.endswith("_Host") or name in ("AMX", "BLAS"):
            return HOST
        if remote := _REMOTE.match(name):
            # The number counts the devices behind one address.
            behind = [device for device, address in self._addresses.items() if address == remote["address"]]
            return behind[int(remote["index"])] if int(remote["index"]) < len(behind) else name
        return next((device for device in self._addresses if name == device or name.startswith(f"{device}_")), name)


def _bytes(mib: str) -> int:
    return round(float(mib) * (1 << 20))
