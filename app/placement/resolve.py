"""What a profile leaves open, decided: context, draft device, prompt cache. Every value is then said explicitly."""

from dataclasses import dataclass

from app.inventory.devices import Host
from app.placement.case import LaunchCase
from app.placement.drafting import trained_draft_tokens
from app.placement.layers import Layout, assign
from app.profiles.profile import GpuLayers

_DEFAULT_CONTEXT_TOKENS = 8192
_PROMPT_CACHE_MAX_BYTES = 8 << 30
_HOST_SHARE_OF_PROMPT_CACHE = 8
NO_DEVICE = "none"
# Where the target cannot be read: enough for every device to get some.
_UNKNOWN_BLOCKS = 1023


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

    @property
    def device_set(self) -> str:
        """The devices as records name them: joined by commas, or `cpu`."""
        return ",".join(self.devices) or "cpu"


def resolve(case: LaunchCase) -> ResolvedLaunch:
    """Decide what the profile leaves open."""
    profile = case.profile
    context = profile.context
    size = context.size if context.size is not None else _default_context(case) * context.slots
    devices = profile.placement.devices
    used = case.machine.device_names if devices is None else tuple(name for name in devices if name != NO_DEVICE)
    draft = profile.speculation.draft if profile.speculation.method.takes_draft_model else None
    return ResolvedLaunch(
        devices=used,
        context_size=size,
        context_per_slot=size if context.unified_kv else size // context.slots,
        draft_device=None if draft is None else draft.device or output_device(case, used),
        draft_gpu_layers=None if draft is None else draft.gpu_layers,
        draft_tokens_max=_effective_draft_tokens(case),
        prompt_cache_bytes=(
            context.prompt_cache_bytes
            if context.prompt_cache_bytes is not None
            else _default_prompt_cache_bytes(case.machine.host)
        ),
    )


def layout_of(case: LaunchCase, devices: tuple[str, ...]) -> Layout:
    """Where every unit of the target goes, when its layers may use these devices."""
    placement = case.profile.placement
    free_bytes = {device.name: device.free_bytes for device in case.machine.devices}
    return assign(
        (case.target.block_count if case.target else _UNKNOWN_BLOCKS) + 1,
        devices,
        placement.gpu_layers,
        placement.split_mode,
        placement.tensor_split,
        placement.main_gpu,
        [free_bytes.get(name, 0) for name in devices],
    )


def output_device(case: LaunchCase, devices: tuple[str, ...]) -> str:
    """The device that holds the output layer, or `none` where that is the host.

    The output layer is the last unit. With very uneven shares that can be another device than the last.
    """
    layout = layout_of(case, devices)
    return NO_DEVICE if layout.output is None else layout.devices[layout.output]


def _default_context(case: LaunchCase) -> int:
    trained = case.target.context_length_trained if case.target else None
    return min(_DEFAULT_CONTEXT_TOKENS, trained or _DEFAULT_CONTEXT_TOKENS)


def _default_prompt_cache_bytes(host: Host) -> int:
    """The engine's own default is 8 GiB whatever the host has; a share of the host is never that surprise."""
    if host.total_bytes is None:
        return _PROMPT_CACHE_MAX_BYTES
    return min(_PROMPT_CACHE_MAX_BYTES, host.total_bytes // _HOST_SHARE_OF_PROMPT_CACHE)


def _effective_draft_tokens(case: LaunchCase) -> int:
    """The engine clamps drafts to what the drafter was trained for."""
    speculation = case.profile.speculation
    trained = trained_draft_tokens(speculation.method, case.target, case.draft)
    return speculation.draft_tokens_max if trained is None else min(speculation.draft_tokens_max, trained)
