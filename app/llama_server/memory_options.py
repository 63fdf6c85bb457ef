"""Extra arguments of a profile that move bytes, for the planner. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.inventory.engine import EngineFlag
from app.llama_server.extra_args import read_flags
from app.placement.options import EngineOptions

_MIB = 1 << 20
# Load modes that leave weights in the file's pages; `mlock` pins them, so they must stay.
_MAPPING_MODES = ("auto", "mmap")
_SWITCHES: Mapping[str, dict[str, Any]] = {
    "-kvo": {"kv_on_devices": True},
    "--kv-offload": {"kv_on_devices": True},
    "-nkvo": {"kv_on_devices": False},
    "--no-kv-offload": {"kv_on_devices": False},
    "--swa-full": {"full_windows": True},
    "--mmap": {"maps_files": True},
    "--no-mmap": {"maps_files": False},
    "--mlock": {"maps_files": False},
    "-dio": {"maps_files": False},
    "--direct-io": {"maps_files": False},
    "--repack": {"repacks": True},
    "-nr": {"repacks": False},
    "--no-repack": {"repacks": False},
    "--no-host": {"pinned_host": False},
    "--op-offload": {"offloads_ops": True},
    "--no-op-offload": {"offloads_ops": False},
    "--embedding": {"keeps_all_outputs": True},
    "--embeddings": {"keeps_all_outputs": True},
    "--rerank": {"keeps_all_outputs": True},
    "--reranking": {"keeps_all_outputs": True},
    "--mmproj-offload": {"projector_on_device": True},
    "--no-mmproj-offload": {"projector_on_device": False},
}
_NUMBERS = {
    "-ncffn": ("cpu_ffn_layers", 1),
    "--n-cpu-ffn": ("cpu_ffn_layers", 1),
    "-ctxcp": ("context_checkpoints", 1),
    "--ctx-checkpoints": ("context_checkpoints", 1),
    "--swa-checkpoints": ("context_checkpoints", 1),
    "--moe-cache-mib": ("expert_cache_bytes", _MIB),
}
_LOAD_MODE = ("-lm", "--load-mode")
_POOLING = "--pooling"


def memory_options(words: Sequence[str], flags: Mapping[str, EngineFlag]) -> EngineOptions:
    """What these arguments change; of one that is repeated the last counts, as it does for the engine.

    Values that the engine would refuse are passed over: other rules speak of them.
    """
    options = EngineOptions()
    for flag in read_flags(words, flags):
        value = None if flag.at is None else words[flag.at]
        if changes := _SWITCHES.get(flag.name):
            options = replace(options, **changes)
        elif flag.name in _LOAD_MODE and value is not None:
            options = replace(options, maps_files=value in _MAPPING_MODES)
        elif flag.name == _POOLING and value is not None:
            options = replace(options, keeps_all_outputs=value != "none")
        elif flag.name in _NUMBERS and value is not None and value.isascii() and value.isdecimal():
            name, unit = _NUMBERS[flag.name]
            counted: dict[str, Any] = {name: int(value[:9]) * unit}
            options = replace(options, **counted)
    return options
