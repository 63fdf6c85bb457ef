"""LaunchProfile: the wish. A frozen value; every change makes a new one."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.errors import ProfileInvalid
from app.speculative.parameters import Method

PROFILE_ID_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
GpuLayers = Annotated[int, Field(ge=0, le=1 << 20)] | Literal["all", "auto"]
CpuMoeLayers = Annotated[int, Field(ge=0, le=1 << 20)] | Literal["all"]


def _printable(text: str) -> str:
    """Control characters would break log lines and argument lists; half of a pair cannot be written at all."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise ValueError("must not contain control characters")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ValueError("must not contain lone surrogates")
    return text


Text = Annotated[str, AfterValidator(_printable)]
ModelPath = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_printable)]
# The engine splits device lists and override lists at commas.
DeviceName = Annotated[str, StringConstraints(pattern=r"^[^,\s]{1,128}$")]


def _single_precision(share: float) -> float:
    """As the engine reads it: it keeps shares in 32 bits, and refuses what those cannot hold."""
    if share and not 1e-6 <= abs(share) <= 1e9:
        raise ValueError("must be 0, or between 0.000001 and 1000000000: only proportions matter")
    return float(f"{share:.9g}")


Share = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_single_precision)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Target(_Part):
    """The target model: its output is served, and it verifies drafts."""

    path: ModelPath


class Draft(_Part):
    """The draft model of methods that need a second file, and where it lives."""

    path: ModelPath
    device: DeviceName | None = None
    gpu_layers: GpuLayers = "all"
    k_type: CacheType = "f16"
    v_type: CacheType = "f16"
    cpu_moe_layers: CpuMoeLayers = 0


class Ngram(_Part):
    """Limits of the n-gram methods, in tokens; null leaves the engine's own."""

    match_length: Annotated[int, Field(ge=1, le=1024)] | None = None
    draft_length_min: Annotated[int, Field(ge=0, le=1024)] | None = None
    draft_length_max: Annotated[int, Field(ge=1, le=1024)] | None = None
    min_hits: Annotated[int, Field(ge=1, le=1024)] | None = None


class Speculation(_Part):
    """How drafts are made. `also` names n-gram methods tried before the main one."""

    method: Method = Method.NONE
    draft: Draft | None = None
    draft_tokens_max: int = Field(3, ge=0, le=1024)
    draft_tokens_min: int = Field(0, ge=0, le=1024)
    draft_probability_min: float = Field(0.0, ge=0.0, le=1.0)
    also: tuple[Literal["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"], ...] = ()
    ngram: Ngram = Ngram()

    @property
    def methods(self) -> tuple[Method, ...]:
        """Every method that drafts, in the order they are asked; empty where none does."""
        also = tuple(Method(name) for name in self.also)
        main = () if self.method is Method.NONE else (self.method,)
        return tuple(dict.fromkeys((*also, *main)))


class Placement(_Part):
    """On which devices the target's layers live, and in which shares."""

    devices: tuple[DeviceName, ...] | None = None
    split_mode: Literal["none", "layer", "row", "tensor"] = "layer"
    tensor_split: tuple[Share, ...] | None = None
    main_gpu: int = Field(0, ge=0)
    gpu_layers: GpuLayers = "all"
    cpu_moe_layers: CpuMoeLayers = 0
    override_tensor: tuple[Text, ...] = ()
    fit: bool = False
    margin_bytes: int | None = Field(None, ge=0)


class Context(_Part):
    """The KV cache and how requests share it. `size` null: up to 8,192 tokens for each slot."""

    size: int | None = Field(None, ge=1, le=1 << 30)
    slots: int = Field(1, ge=1, le=1024)
    unified_kv: bool = False
    k_type: CacheType = "f16"
    v_type: CacheType = "f16"
    batch_size: int = Field(2048, ge=1, le=1 << 20)
    ubatch_size: int = Field(512, ge=1, le=1 << 20)
    flash_attention: Literal["on", "off", "auto"] = "auto"
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    prompt_cache_bytes: Annotated[int, Field(ge=0, le=1 << 50)] | None = None


class Serving(_Part):
    """How the profile answers requests and when it may come and go."""

    aliases: tuple[
        Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_printable)], ...
    ] = ()
    idle_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    autostart: bool = False
    pinned: bool = False
    priority: int = 0
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    queue_limit: int = Field(32, ge=0)
    queue_timeout_seconds: float = Field(600, gt=0, allow_inf_nan=False)
    on_degraded: Literal["keep", "stop", "baseline"] = "keep"
    allow_wrong_logprobs: bool = False
    strip_parameters: tuple[str, ...] = ()
    set_parameters: Mapping[str, Any] = {}

    @property
    def idle_limit_seconds(self) -> float | None:
        """After how long without a request it ends; None where it may be idle for ever."""
        return None if self.pinned else self.idle_timeout_seconds


class LaunchProfile(_Part):
    """One way to run one model. Everything but `id` and `target.path` has a default."""

    id: Annotated[str, StringConstraints(pattern=PROFILE_ID_PATTERN)]
    description: str = Field("", max_length=4096)
    tags: tuple[Annotated[str, StringConstraints(min_length=1, max_length=64)], ...] = ()
    target: Target
    speculation: Speculation = Speculation()
    placement: Placement = Placement()
    projector: ModelPath | None = None
    context: Context = Context()
    serving: Serving = Serving()
    extra_args: tuple[Text, ...] = ()
    env: Mapping[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")], Text] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a request may use for it."""
        return tuple(dict.fromkeys((self.id, *self.serving.aliases)))


def parse_profile(document: Any) -> LaunchProfile:
    """A profile from plain data. Raises ProfileInvalid that lists each field with what is wrong.

    The read-only members `revision` and `status` are accepted and ignored, so that what was read can be written.
    """
    if isinstance(document, Mapping):
        document = {key: value for key, value in document.items() if key not in ("revision", "status")}
    try:
        return LaunchProfile.model_validate(document)
    except ValidationError as failure:
        problems = [
            {
                "field": ".".join(str(part) for part in problem["loc"]),
                "message": "unknown field" if problem["type"] == "extra_forbidden" else problem["msg"],
            }
            for problem in failure.errors()
        ]
        named = "; ".join(f"{problem['field'] or 'profile'}: {problem['message']}" for problem in problems)
        raise ProfileInvalid(f"the profile is not valid: {named}", problems) from failure


def without_speculation(profile: LaunchProfile) -> LaunchProfile:
    """The baseline of a profile: the same with nothing drafted."""
    speculation = profile.speculation.model_copy(update={"method": Method.NONE, "draft": None, "also": ()})
    return profile.model_copy(update={"speculation": speculation})


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7396: objects merge member by member, null removes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def document_of(profile: LaunchProfile) -> dict[str, Any]:
    """The profile as plain JSON data, defaults included."""
    return profile.model_dump(mode="json")
