"""ModelShape: every fact of a model's header that a plan needs. Made once per file, then only read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.inventory.gguf_header import TensorInfo
from app.inventory.models import ModelFile
from app.placement import attention_kinds as kinds
from app.placement.header_keys import HeaderKeys


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Lengths in values: of a dense layer, of one routed expert (of which `used` work per token), of the shared one."""

    dense: int
    expert: int
    used: int
    shared: int


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer. Widths count values per token; 0 where the layer has no such part.

    `k_width` and `v_width` are what the cache holds per cell, `query_width` is all query heads together; `is_normed`
    tells whether queries and keys are normed.
    """

    heads: int
    k_width: int
    v_width: int
    query_width: int
    is_normed: bool
    is_windowed: bool
    is_recurrent: bool
    is_nextn: bool
    feed: FeedForward


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Ranks of multi-head latent attention: one key head of `kv_rank + rope` values serves all heads."""

    kv_rank: int
    rope: int
    key_length: int


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """What a recurrent layer keeps for one sequence, in 32-bit values, and how wide its convolution is.

    `is_scan` is true of all but gated delta nets, whose buffers are known.
    """

    conv_values: int
    state_values: int
    conv_width: int
    is_scan: bool


@dataclass(frozen=True, slots=True)
class CompressedContext:
    """DeepSeek V4: ratios by layer (0: window only), widths of keys and of the indexer's keys, states per token."""

    ratios: tuple[int, ...]
    key_width: int
    index_width: int
    streams: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a model. `layers` includes the MTP layers, which come last.

    `window` is the reach of windowed layers in tokens. `unknown` lists what is not known about the architecture, in
    words; where it is empty, everything a plan needs was found.
    """

    model: ModelFile
    architecture: str
    embedding_length: int
    vocabulary_size: int
    layers: tuple[LayerShape, ...]
    nextn_layers: int
    window: int
    latent: LatentAttention | None
    recurrent: RecurrentState | None
    compressed: CompressedContext | None
    undoes_drafts_by_state: bool
    is_tied: bool
    unknown: tuple[str, ...]

    @property
    def block_count(self) -> int:
        """Layers, the MTP layers included."""
        return len(self.layers)

    @property
    def unit_count(self) -> int:
        """What is placed: every layer, and the output as the last one."""
        return len(self.layers) + 1


def shape_of(model: ModelFile) -> ModelShape:
    """Read the shape from a header that is already in memory; never raises."""
    keys = HeaderKeys(model)
    blocks = model.block_count
    nextn = _nextn_layers(model)
    embedding = keys.number("embedding_length")
    heads = keys.per_layer("attention.head_count", blocks)
    latent = _latent(keys)
    windowed, window = _windows(model, keys, blocks, blocks - nextn)
    kv_heads = keys.per_layer("attention.head_count_kv", blocks) if keys.has("attention.head_count_kv") else heads
    recurrent = _recurrent_layers(model, keys, blocks, blocks - nextn, kv_heads)
    lengths = _head_lengths(keys, embedding, heads)
    layers = []
    feeds = _feed_forwards(model, keys, blocks)
    cached_blocks = _cached_blocks(model, keys, blocks)
    # Sparse attention keeps one more key per cell for its indexer. Not every layer has one; all are counted.
    index = keys.number("attention.indexer.key_length") if model.architecture != "deepseek4" else 0
    for block in range(blocks):
        key, value = lengths[windowed[block]]
        attends = not recurrent[block] or model.architecture in kinds.ATTENDING_AND_RECURRENT
        caches = attends and block < cached_blocks
        layers.append(
            LayerShape(
                heads=heads[block],
                k_width=key * kv_heads[block] + index if caches else 0,
                v_width=value * kv_heads[block] if caches and latent is None else 0,
                query_width=heads[block] * key if attends else 0,
                is_normed=f"blk.{block}.attn_q_norm.weight" in model.tensors,
                is_windowed=windowed[block],
                is_recurrent=recurrent[block],
                is_nextn=block >= blocks - nextn,
                feed=feeds[block],
            )
        )
    return ModelShape(
        model=model,
        architecture=model.architecture,
        embedding_length=embedding,
        vocabulary_size=model.vocabulary_size or 0,
        layers=tuple(layers),
        nextn_layers=nextn,
        window=window,
        latent=latent,
        recurrent=_state(keys, embedding, max(heads, default=0)) if any(recurrent) else None,
        compressed=_compressed(model, keys, blocks),
        undoes_drafts_by_state=model.architecture in kinds.ROLLBACK,
        is_tied="output.weight" not in model.tensors and "token_embd.weight" in model.tensors,
        unknown=_unknown(model, keys, embedding, heads, windowed),
    )


def _nextn_layers(model: ModelFile) -> int:
    """DeepSeek V4 forgets MTP layers whose tensors are missing; other architectures keep their units."""
    if model.architecture == "deepseek4" and not model.has_nextn_tensors:
        return 0
    return min(model.nextn_layers, model.block_count)


def _latent(keys: HeaderKeys) -> LatentAttention | None:
    """Only files that name the key length of one head keep the compressed cache; older ones cache every head."""
    key_length = keys.number("attention.key_length_mla")
    if not key_length or not keys.number("attention.value_length_mla"):
        return None
    return LatentAttention(
        kv_rank=keys.number("attention.kv_lora_rank"),
        rope=keys.number("rope.dimension_count"),
        key_length=key_length,
    )


def _head_lengths(keys: HeaderKeys, embedding: int, heads: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Key and value length of one head: of full layers, and of windowed ones."""
    default = embedding // heads[0] if heads and heads[0] else 0
    key = keys.number("attention.key_length", default)
    value = keys.number("attention.value_length", default)
    windowed = keys.number("attention.key_length_swa", key), keys.number("attention.value_length_swa", value)
    return (key, value), windowed


def _windows(model: ModelFile, keys: HeaderKeys, blocks: int, trunk: int) -> tuple[Sequence[bool], int]:
    """Which layers see a window only, and how far it reaches in tokens."""
    nothing = (False,) * blocks, 0
    window = keys.number("attention.sliding_window")
    pattern = keys.flags("attention.sliding_window_pattern", blocks)
    if model.architecture in kinds.WINDOW_FROM_FILE:
        return (pattern, window) if pattern and window and any(pattern) else nothing
    rule = kinds.WINDOW_RULES.get(model.architecture)
    if rule is None or (rule.only_blocks is not None and rule.only_blocks != trunk):
        return nothing
    if rule.fixed_window is not None and not (keys.has("attention.sliding_window") and window == 0):
        window = rule.fixed_window
    window = window or (rule.default_window or 0)
    if not window:
        return nothing
    if pattern is not None:
        return pattern, window
    period = keys.number("attention.sliding_window_pattern", rule.period)
    if model.architecture == "deepseek4":
        return (True,) * blocks, window
    offset = 0 if rule.dense_first else 1
    return [block < trunk and (period == 0 or (block + offset) % period != 0) for block in range(blocks)], window


def _recurrent_layers(
    model: ModelFile, keys: HeaderKeys, blocks: int, trunk: int, kv_heads: Sequence[int]
) -> Sequence[bool]:
    architecture = model.architecture
    if architecture in kinds.DELTA_NETS:
        said = keys.flags("attention.recurrent_layers", blocks)
        interval = keys.number("full_attention_interval", kinds.FULL_ATTENTION_INTERVAL) or 1
        return said or [block < trunk and (block + 1) % interval != 0 for block in range(blocks)]
    if architecture in kinds.RECURRENT_EVERYWHERE | kinds.ATTENDING_AND_RECURRENT:
        return (True,) * blocks
    if architecture in kinds.RECURRENT_WITHOUT_HEADS:
        feeds = keys.per_layer("feed_forward_length", blocks)
        is_nemotron = architecture.startswith("nemotron")
        return [
            block < trunk and kv_heads[block] == 0 and not (is_nemotron and feeds[block]) for block in range(blocks)
        ]
    return (False,) * blocks


def _state(keys: HeaderKeys, embedding: int, heads: int) -> RecurrentState:
    """Sizes of convolution and state, by which keys the file has."""
    is_scan = keys.model.architecture not in kinds.DELTA_NETS
    if head := keys.number("wkv.head_size"):
        return RecurrentState(keys.number("token_shift_count", 2) * embedding, head * embedding, embedding, is_scan)
    if taps := keys.number("shortconv.l_cache"):
        return RecurrentState(max(0, taps - 1) * embedding, 0, 3 * embedding, is_scan)
    taps = keys.number("ssm.conv_kernel")
    if head := keys.number("kda.head_dim"):
        inner = heads * head
        return RecurrentState(3 * (taps - 1 if taps else 3) * inner, head * inner, 3 * inner, is_scan)
    inner, state, groups = keys.number("ssm.inner_size"), keys.number("ssm.state_size"), keys.number("ssm.group_count")
    width = inner + 2 * groups * state
    return RecurrentState(max(0, taps - 1) * width, state * inner, width, is_scan)


def _compressed(model: ModelFile, keys: HeaderKeys, blocks: int) -> CompressedContext | None:
    if model.architecture != "deepseek4":
        return None
    return CompressedContext(
        ratios=keys.per_layer("attention.compress_ratios", blocks),
        key_width=keys.number("attention.key_length"),
        index_width=keys.number("attention.indexer.key_length"),
        streams=keys.number("hyper_connection.count", 1),
    )


def _cached_blocks(model: ModelFile, keys: HeaderKeys, blocks: int) -> int:
    """Layers from here on read the cache of an earlier one."""
    if model.architecture == "gemma3n":
        return 20
    return blocks - min(blocks, keys.number("attention.shared_kv_layers"))


def _feed_forwards(model: ModelFile, keys: HeaderKeys, blocks: int) -> list[FeedForward]:
    """Feed-forward lengths of every layer, from its tensors: keys are absent, or say what one layer has."""
    used = keys.per_layer("expert_used_count", blocks)
    tensors = model.tensors
    return [
        FeedForward(
            dense=_rows(tensors, f"blk.{block}.ffn_up.weight"),
            expert=(
                _rows(tensors, f"blk.{block}.ffn_up_exps.weight")
                or _rows(tensors, f"blk.{block}.ffn_gate_up_exps.weight") // 2
            ),
            used=used[block],
            shared=_rows(tensors, f"blk.{block}.ffn_up_shexp.weight"),
        )
        for block in range(blocks)
    ]


def _rows(tensors: Mapping[str, TensorInfo], name: str) -> int:
    tensor = tensors.get(name)
    return tensor.shape[1] if tensor is not None and len(tensor.shape) > 1 else 0


def _unknown(
    model: ModelFile, keys: HeaderKeys, embedding: int, heads: Sequence[int], windowed: Sequence[bool]
) -> tuple[str, ...]:
    found = [f"{doubt} in the header of {model.path.name}" for doubt in dict.fromkeys(keys.doubts)]
    if reason := kinds.UNMODELLED.get(model.architecture):
        found.append(f"architecture {model.architecture}: {reason}")
    elif model.architecture not in kinds.MEASURED:
        found.append(f"architecture {model.architecture}: its compute buffers were never compared with the engine")
    if not embedding or not heads or not any(heads):
        found.append("the widths of its layers are not in the header")
    if keys.number("attention.sliding_window") and not any(windowed) and model.architecture not in kinds.WINDOW_IGNORED:
        found.append("it names an attention window, and which layers have one is not known: all are planned in full")
    return tuple(found)
