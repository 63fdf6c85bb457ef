"""Launch profile -> argument list. Pure. Everything that decides a placement is said, also where it equals a default.

The contract test holds every flag here against `--help` of the real engine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.inventory.engine import EngineFacts
from app.placement.resolve import ResolvedLaunch
from app.profiles.profile import CpuMoeLayers, LaunchProfile, Ngram
from app.speculative.parameters import (
    NGRAM_LENGTH_MAX,
    NGRAM_MATCH,
    NGRAM_MIN_HITS,
    NGRAM_MOD_LENGTH_MAX,
    NGRAM_MOD_LENGTH_MIN,
    NGRAM_MOD_MATCH,
    Method,
)

SPEC_TYPES: dict[Method, str] = {
    Method.NONE: "none",
    Method.MTP: "draft-mtp",
    Method.DSPARK: "draft-dspark",
    Method.DFLASH: "draft-dflash",
    Method.EAGLE3: "draft-eagle3",
    Method.DRAFT: "draft-simple",
    Method.NGRAM_SIMPLE: "ngram-simple",
    Method.NGRAM_MAP_K: "ngram-map-k",
    Method.NGRAM_MAP_K4V: "ngram-map-k4v",
    Method.NGRAM_MOD: "ngram-mod",
    Method.NGRAM_CACHE: "ngram-cache",
}


@dataclass(frozen=True, slots=True)
class LaunchFiles:
    """The files of a launch as absolute paths; the first part where a model is split."""

    target: Path
    draft: Path | None = None
    projector: Path | None = None


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A Unix socket whose path ends in `.sock`, or a loopback port."""

    socket_path: str | None = None
    port: int | None = None


Arguments = Iterator[tuple[str, ...]]


def launch_flags(
    profile: LaunchProfile,
    resolved: ResolvedLaunch,
    files: LaunchFiles,
    *,
    rpc: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """All flags that the profile's fields come to, in a fixed order; not its extra arguments, nor the address."""
    # Handlers run in order: devices that --rpc brings must exist before --device names them.
    groups = (
        [("--rpc", ",".join(rpc))] if rpc else [],
        _identity(profile, files),
        _placement(profile, resolved),
        _context(profile, resolved),
        _speculation(profile, resolved, files),
        # The least that tells where everything lies. It tells no more of a request's text than any lower one.
        [("--verbosity", "4"), ("--metrics",), ("--slots",)],
    )
    return tuple(word for group in groups for argument in group for word in argument)


def address_flags(address: ListenAddress) -> tuple[str, ...]:
    """Where the engine shall listen."""
    if address.socket_path is not None:
        return ("--host", address.socket_path)
    return ("--host", "127.0.0.1", "--port", str(address.port))


def command_line(engine: EngineFacts, flags: tuple[str, ...], address: ListenAddress) -> tuple[str, ...]:
    """What is executed."""
    return (*engine.command, *flags, *address_flags(address))


def _identity(profile: LaunchProfile, files: LaunchFiles) -> Arguments:
    yield "--model", str(files.target)
    # One name only: of several the engine calls itself by the first in the alphabet.
    yield "--alias", profile.id
    if files.projector is not None:
        yield "--mmproj", str(files.projector)


def _placement(profile: LaunchProfile, resolved: ResolvedLaunch) -> Arguments:
    placement = profile.placement
    if placement.devices is not None:
        yield "--device", ",".join(placement.devices) or "none"
    yield "--gpu-layers", str(placement.gpu_layers)
    # With no device there is nothing to split, and `--split-mode none` would fail on its main device.
    if resolved.devices:
        yield "--split-mode", placement.split_mode
        yield "--main-gpu", str(placement.main_gpu)
        if placement.tensor_split is not None:
            yield "--tensor-split", ",".join(f"{share:.9g}" for share in placement.tensor_split)
    yield from _experts(placement.cpu_moe_layers, "--cpu-moe", "--n-cpu-moe")
    if placement.override_tensor:
        yield "--override-tensor", ",".join(placement.override_tensor)
    yield "--fit", "on" if placement.fit else "off"


def _experts(layers: CpuMoeLayers, every: str, some: str) -> Arguments:
    if layers == "all":
        yield (every,)
    elif layers > 0:
        yield some, str(layers)


def _context(profile: LaunchProfile, resolved: ResolvedLaunch) -> Arguments:
    context = profile.context
    yield "--ctx-size", str(resolved.context_size)
    yield "--parallel", str(context.slots)
    yield ("--kv-unified" if context.unified_kv else "--no-kv-unified",)
    yield "--cache-type-k", context.k_type
    yield "--cache-type-v", context.v_type
    yield "--batch-size", str(context.batch_size)
    yield "--ubatch-size", str(context.ubatch_size)
    yield "--flash-attn", context.flash_attention
    yield "--cache-ram", str(resolved.prompt_cache_bytes >> 20)
    if context.threads is not None:
        yield "--threads", str(context.threads)


def _speculation(profile: LaunchProfile, resolved: ResolvedLaunch, files: LaunchFiles) -> Arguments:
    speculation = profile.speculation
    methods = speculation.methods
    yield "--spec-type", ",".join(SPEC_TYPES[method] for method in methods or (Method.NONE,))
    if not methods:
        return
    draft = speculation.draft
    if draft is not None and files.draft is not None:
        yield "--spec-draft-model", str(files.draft)
        yield "--spec-draft-device", resolved.draft_device or "none"
        yield "--spec-draft-ngl", str(resolved.draft_gpu_layers)
        yield "--spec-draft-type-k", draft.k_type
        yield "--spec-draft-type-v", draft.v_type
        yield from _experts(draft.cpu_moe_layers, "--spec-draft-cpu-moe", "--spec-draft-n-cpu-moe")
    if not speculation.method.is_ngram and speculation.method is not Method.NONE:
        yield "--spec-draft-n-max", str(speculation.draft_tokens_max)
        yield "--spec-draft-n-min", str(speculation.draft_tokens_min)
        yield "--spec-draft-p-min", f"{speculation.draft_probability_min:g}"
    for method in methods:
        yield from _ngram(method, speculation.ngram)


def _ngram(method: Method, ngram: Ngram) -> Arguments:
    def chosen(value: int | None, default: int) -> str:
        return str(default if value is None else value)

    if method is Method.NGRAM_MOD:
        longest = NGRAM_MOD_LENGTH_MAX if ngram.draft_length_max is None else ngram.draft_length_max
        yield "--spec-ngram-mod-n-match", chosen(ngram.match_length, NGRAM_MOD_MATCH)
        yield "--spec-ngram-mod-n-min", chosen(ngram.draft_length_min, min(NGRAM_MOD_LENGTH_MIN, longest))
        yield "--spec-ngram-mod-n-max", str(longest)
    elif method in (Method.NGRAM_SIMPLE, Method.NGRAM_MAP_K, Method.NGRAM_MAP_K4V):
        prefix = f"--spec-{method.value}"
        yield f"{prefix}-size-n", chosen(ngram.match_length, NGRAM_MATCH)
        yield f"{prefix}-size-m", chosen(ngram.draft_length_max, NGRAM_LENGTH_MAX)
        yield f"{prefix}-min-hits", chosen(ngram.min_hits, NGRAM_MIN_HITS)
