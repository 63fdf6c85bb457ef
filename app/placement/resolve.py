"""What a profile leaves open, decided: context, draft device, prompt cache. Every value is then said explicitly."""

from dataclasses import dataclass

from app.inventory.devices import Host
from app.placement.case import LaunchCase
from app.profiles.profile import GpuLayers, LaunchProfile
from app.speculative.parameters import Method

_DEFAULT_CONTEXT_TOKENS = 8192
_PROMPT_CACHE_MAX_BYTES = 8 << 30
_HOST_SHARE_OF_PROMPT_CACHE = 8
NO_DEVICE = "none"


@dataclass(frozen=True, slots=True)
class ResolvedLaunch:
    """The values that a launch will have. `context_size` counts tokens of all slots together.

    `devices` is what the layers may use, in order; empty means the host. `draft_device` is None where no draft model is
    loaded, and `none` where it stays on the host.
    """

    devices: tuple[str, ...]
    context_size: int
    context_per_slot: int
    draft_device: str | None
    draft_gpu_layers: GpuLayers | None
    draft_tokens_max: int
    prompt_cache_bytes: int


def resolve(case: LaunchCase) -> ResolvedLaunch:
    """Decide what the profile leaves open."""
    profile = case.profile
    context = profile.context
    size = context.size if context.size is not None else _default_context(case) * context.slots
    devices = profile.placement.devices
    used = case.engine.device_names if devices is None else tuple(name for name in devices if name != NO_DEVICE)
    draft = profile.speculation.draft if profile.speculation.method.takes_draft_model else None
    return ResolvedLaunch(
        devices=used,
        context_size=size,
        context_per_slot=size if context.unified_kv else size // context.slots,
        draft_device=None if draft is None else draft.device or output_device(profile, used),
        draft_gpu_layers=None if draft is None else draft.gpu_layers,
        draft_tokens_max=_effective_draft_tokens(case),
        prompt_cache_bytes=(
            context.prompt_cache_bytes
            if context.prompt_cache_bytes is not None
            else _default_prompt_cache_bytes(case.machine.host)
        ),
    )


def output_device(profile: LaunchProfile, devices: tuple[str, ...]) -> str:
    """The device that holds the output layer, or `none` where that is the host.

    The output layer is the last unit, so it goes with the last device that has a share; with split mode `none` one
    device has all.
    """
    placement = profile.placement
    if not devices or placement.gpu_layers == 0:
        return NO_DEVICE
    if placement.split_mode == "none":
        return devices[min(placement.main_gpu, len(devices) - 1)]
    shares = placement.tensor_split or ()
    with_share = [name for name, share in zip(devices, shares, strict=False) if share > 0]
    return with_share[-1] if with_share else devices[-1]


def _default_context(case: LaunchCase) -> int:
    trained = case.target.context_length_trained if case.target else None
    return min(_DEFAULT_CONTEXT_TOKENS, trained or _DEFAULT_CONTEXT_TOKENS)


def _default_prompt_cache_bytes(host: Host) -> int:
    """The engine's own default is 8 GiB whatever the host has; a share of the host is never that surprise."""
    if host.total_bytes is None:
        return _PROMPT_CACHE_MAX_BYTES
    return min(_PROMPT_CACHE_MAX_BYTES, host.total_bytes // _HOST_SHARE_OF_PROMPT_CACHE)


def _effective_draft_tokens(case: LaunchCase) -> int:
    """Block drafters are clamped by the engine to the block they were trained for.

    DFlash fills a block whose first place is the last token; DSpark begins with its first draft token.
    """
    wanted = case.profile.speculation.draft_tokens_max
    block = case.draft.block_size if case.draft else None
    if block and case.profile.speculation.method is Method.DFLASH:
        return min(wanted, block - 1)
    if block and case.profile.speculation.method is Method.DSPARK:
        return min(wanted, block)
    return wanted
