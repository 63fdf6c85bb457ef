"""EngineOptions: flags beside the profile's fields that decide where bytes go. A value; who reads flags makes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Defaults are the engine's own.

    `maps_files` is false where weights are read into memory instead; `keeps_all_outputs` where logits of a whole batch
    are wanted (embeddings, reranking). `context_checkpoints` bounds the states kept for each slot on the host;
    `expert_cache_bytes` is what devices keep of experts that lie on the host. With `offloads_ops` a device may do work
    on weights of the host.
    """

    kv_on_devices: bool = True
    full_windows: bool = False
    maps_files: bool = True
    repacks: bool = True
    pinned_host: bool = True
    offloads_ops: bool = True
    cpu_ffn_layers: int = 0
    keeps_all_outputs: bool = False
    context_checkpoints: int = 32
    expert_cache_bytes: int = 0
    projector_on_device: bool = True
