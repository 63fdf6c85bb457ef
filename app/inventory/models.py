"""ModelFile: what Paceline knows of a model from the headers of its files."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from app.errors import ModelFileMissing, ModelFileUnreadable
from app.inventory.ggml_types import FILE_TYPES
from app.inventory.gguf import HEADER_BYTES_MAX, TENSORS_MAX, ArraySummary, GgufHeader, TensorInfo, read_header
from app.inventory.gguf_cursor import shown
from app.inventory.model_paths import exists, part_paths, resolve_model_path

__all__ = ["ModelFile", "ModelKind", "read_model", "resolve_model_path"]

# Later code loops over layers and sizes tables by vocabulary: bounds, far above any model.
_LAYERS_MAX: Final = 4_096
_NUMBER_MAX: Final = (1 << 32) - 1
_TOKENS_KEY: Final = "tokenizer.ggml.tokens"
_ARCHITECTURE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NAME_CHARACTERS_MAX: Final = 255
_LOADABLE: Final = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.gguf\Z")
_NEXTN: Final = re.compile(r"blk\.[0-9]+\.nextn\.")


class ModelKind(StrEnum):
    """What a file can be used for. An ordinary draft model is a `target` too."""

    TARGET = "target"
    DFLASH = "dflash"
    DSPARK = "dspark"
    EAGLE3 = "eagle3"
    MTP_ONLY = "mtp_only"
    ASSISTANT = "assistant"
    PROJECTOR = "projector"
    LORA = "lora"
    CONTROL_VECTOR = "control_vector"
    UNKNOWN = "unknown"


_KIND_BY_ARCHITECTURE: Final[Mapping[str, ModelKind]] = MappingProxyType(
    {
        "eagle3": ModelKind.EAGLE3,
        "gemma4-assistant": ModelKind.ASSISTANT,
        "clip": ModelKind.PROJECTOR,
        "controlvector": ModelKind.CONTROL_VECTOR,
    }
)


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One model: a file, or all parts of a split set. None stands for what the header leaves out.

    `block_count` includes the MTP layers (`nextn_layers`); `has_nextn_tensors` tells whether their
    weights are really there. `size_bytes` is all files together. `vocabulary_size` counts tokens.
    `tokenizer_fingerprint` is over tokenizer type and token texts: equal fingerprints mean that
    an id stands for the same text. `block_size` is what a block drafter was trained for;
    `target_layers` and `target_hidden_size` describe the target that a drafter reads from.
    `quantisation` is what the file names itself, `largest_type` what most of its bytes really are.
    """

    path: Path
    parts: tuple[Path, ...]
    size_bytes: int
    architecture: str
    name: str | None
    kind: ModelKind
    context_length_trained: int | None
    block_count: int
    nextn_layers: int
    has_nextn_tensors: bool
    embedding_length: int | None
    vocabulary_size: int | None
    tokenizer_model: str | None
    tokenizer_fingerprint: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    mask_token_id: int | None
    add_bos_token: bool | None
    add_eos_token: bool | None
    has_chat_template: bool
    expert_count: int
    expert_used_count: int
    block_size: int | None
    has_confidence_head: bool
    has_own_embeddings: bool
    has_own_head: bool
    target_layers: tuple[int, ...] | None
    target_hidden_size: int | None
    quantisation: str | None
    largest_type: str | None
    header: GgufHeader
    tensors: Mapping[str, TensorInfo]

    @property
    def has_loadable_names(self) -> bool:
        """Whether llama.cpp finds the other parts: it knows `NAME-00001-of-00003.gguf` only.

        Sets with `.` or `_` before the numbers are in circulation; it exits with
        `invalid split file name` until their files are renamed.
        """
        return len(self.parts) == 1 or all(_LOADABLE.search(part.name) for part in self.parts)


def read_model(path: Path) -> ModelFile:
    """Read a model from any of its files.

    Raises ModelFileMissing naming the absent parts, ModelFileUnreadable for damaged files and for
    parts that do not belong together.
    """
    headers = _read_parts(path)
    return _model(headers, _merged(headers))


def _read_parts(path: Path) -> list[GgufHeader]:
    paths = part_paths(path)
    missing = [part.name for part in paths if not exists(part)] if len(paths) > 1 else []
    if missing:
        raise ModelFileMissing(
            f"{shown(path)} is one of {len(paths)} parts, and of these {len(missing)} are missing: "
            f"fetch {', '.join(map(shown, missing[:8]))}{' and more' if missing[8:] else ''}",
            path=shown(path),
            missing=[shown(name) for name in missing],
        )
    headers: list[GgufHeader] = []
    left_bytes = HEADER_BYTES_MAX
    for index, part in enumerate(paths):
        header = read_header(part, left_bytes)
        left_bytes -= header.data_offset_bytes
        _demand_part(header, index, len(paths))
        headers.append(header)
    return headers


def _demand_part(header: GgufHeader, index: int, count: int) -> None:
    """What a part says of its place in the set must be what its name says. It counts from 0."""
    said = header.count("split.no", _NUMBER_MAX) or 0, header.count("split.count", _NUMBER_MAX) or 1
    if said != (index, count):
        raise ModelFileUnreadable(
            f"{shown(header.path)}: expected part {index + 1} of {count}, as the file's name says, "
            f"saw split.no {said[0]} (from 0) and split.count {said[1]} in it: "
            "give all files of the set their own names back, or fetch the set again",
            path=shown(header.path),
            expected=f"part {index + 1} of {count}",
            observed=f"part {said[0] + 1} of {said[1]}",
        )


def _merged(headers: Sequence[GgufHeader]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for header in headers:
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise _unlike(header, "every tensor in one part only", f"{name!r} in two parts")
            tensors[name] = tensor
        if len(tensors) > TENSORS_MAX:
            raise _unlike(header, f"at most {TENSORS_MAX} tensors in all parts", str(len(tensors)))
    for header in headers:
        announced = header.count("split.tensors.count", _NUMBER_MAX)
        if announced not in (None, len(tensors)):
            raise _unlike(header, f"{announced} tensors in all parts (split.tensors.count)", str(len(tensors)))
    return tensors


def _unlike(header: GgufHeader, expected: str, seen: str) -> ModelFileUnreadable:
    return ModelFileUnreadable(
        f"{shown(header.path)}: expected {expected}, saw {seen}: "
        "the parts are not of one model, or one is damaged: fetch the set again",
        path=shown(header.path),
        expected=expected,
        observed=seen,
    )


def _model(headers: Sequence[GgufHeader], tensors: Mapping[str, TensorInfo]) -> ModelFile:
    header = headers[0]
    architecture = header.text("general.architecture") or ""
    if not _ARCHITECTURE.fullmatch(architecture):
        raise _unlike(header, "the name of an architecture as general.architecture", repr(architecture[:80]))

    def number(key: str, most: int = _NUMBER_MAX) -> int | None:
        return header.count(f"{architecture}.{key}", most)

    block_count = number("block_count", _LAYERS_MAX) or 0
    nextn_layers = number("nextn_predict_layers", _LAYERS_MAX) or 0
    first_nextn = max(0, block_count - nextn_layers)
    name = header.text("general.name")
    file_type = header.count("general.file_type", _NUMBER_MAX)
    return ModelFile(
        path=header.path,
        parts=tuple(part.path for part in headers),
        size_bytes=sum(part.file_size_bytes for part in headers),
        architecture=architecture,
        name=name[:_NAME_CHARACTERS_MAX] if name else None,
        kind=_kind(header, architecture, tensors, first_nextn),
        context_length_trained=number("context_length"),
        block_count=block_count,
        nextn_layers=nextn_layers,
        has_nextn_tensors=any(
            f"blk.{layer}.nextn.eh_proj.weight" in tensors for layer in range(first_nextn, block_count)
        ),
        embedding_length=number("embedding_length"),
        vocabulary_size=_vocabulary_size(header, tensors) or number("vocab_size"),
        tokenizer_model=header.text("tokenizer.ggml.model"),
        tokenizer_fingerprint=_tokenizer_fingerprint(header),
        bos_token_id=header.count("tokenizer.ggml.bos_token_id", _NUMBER_MAX),
        eos_token_id=header.count("tokenizer.ggml.eos_token_id", _NUMBER_MAX),
        mask_token_id=header.count("tokenizer.ggml.mask_token_id", _NUMBER_MAX),
        add_bos_token=header.flag("tokenizer.ggml.add_bos_token"),
        add_eos_token=header.flag("tokenizer.ggml.add_eos_token"),
        has_chat_template=bool(header.text("tokenizer.chat_template")),
        expert_count=number("expert_count") or 0,
        expert_used_count=number("expert_used_count") or 0,
        block_size=number("block_size"),
        has_confidence_head=_has_confidence_head(header, architecture, tensors),
        has_own_embeddings="token_embd.weight" in tensors,
        has_own_head="output.weight" in tensors,
        target_layers=header.integers(f"{architecture}.target_layers"),
        target_hidden_size=number("target_hidden_size"),
        quantisation=None if file_type is None else FILE_TYPES.get(file_type, f"file-type-{file_type}"),
        largest_type=_largest_type(tensors),
        header=header,
        tensors=MappingProxyType(dict(tensors)),
    )


def _kind(header: GgufHeader, architecture: str, tensors: Mapping[str, TensorInfo], first_nextn: int) -> ModelKind:
    if architecture == "dflash":
        return ModelKind.DSPARK if "markov_w1.weight" in tensors else ModelKind.DFLASH
    if architecture in _KIND_BY_ARCHITECTURE:
        return _KIND_BY_ARCHITECTURE[architecture]
    # Adapters carry the architecture of their model, importance matrices its tensor names too.
    if header.text("general.type") == "adapter" and header.text("adapter.type") == "lora":
        return ModelKind.LORA
    has_trunk = first_nextn > 0 and any(name.startswith("blk.0.") for name in tensors)
    if not has_trunk and any(_NEXTN.match(name) for name in tensors):
        return ModelKind.MTP_ONLY
    whole = header.text("general.type") in (None, "model")
    return ModelKind.TARGET if whole and has_trunk and "token_embd.weight" in tensors else ModelKind.UNKNOWN


def _has_confidence_head(header: GgufHeader, architecture: str, tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether DSpark can tell how sure it is. llama.cpp trusts the key, and takes none for a yes."""
    claimed = header.metadata.get(f"{architecture}.has_confidence_head", True)
    return claimed in (True, "true") and any(name.startswith("conf_proj.") for name in tensors)


def _vocabulary_size(header: GgufHeader, tensors: Mapping[str, TensorInfo]) -> int | None:
    """Tokens in the vocabulary; where the file has none, the rows of its embeddings."""
    tokens = header.length(_TOKENS_KEY)
    if tokens is not None:
        return tokens
    embeddings = tensors.get("token_embd.weight")
    if embeddings is None or len(embeddings.shape) < 2 or embeddings.shape[1] > _NUMBER_MAX:
        return None
    return embeddings.shape[1]


def _tokenizer_fingerprint(header: GgufHeader) -> str | None:
    """Drafts are token ids, so only what an id stands for counts: no merges, no scores."""
    tokens = header.metadata.get(_TOKENS_KEY)
    if not isinstance(tokens, ArraySummary):
        return None
    said = f"{header.text('tokenizer.ggml.model')}\0{tokens.count}\0{tokens.digest}"
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def _largest_type(tensors: Mapping[str, TensorInfo]) -> str | None:
    by_type: Counter[str] = Counter()
    for tensor in tensors.values():
        by_type[tensor.type_name] += tensor.n_bytes
    return by_type.most_common(1)[0][0] if by_type else None
