"""The header of a GGUF file: metadata and tensor table, never a weight.

Follows the checks of llama.cpp's own reader (ggml/src/gguf.cpp), so that what is accepted here
is not refused there: versions 2 and 3, no nested arrays, no key or tensor twice, tensors laid
out one after another. Beyond those it bounds what a damaged or hostile file can cost.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from app.inventory.ggml_types import REMOVED_TENSOR_TYPES, tensor_bytes, tensor_type_name
from app.inventory.gguf_cursor import Cursor, open_cursor
from app.inventory.gguf_header import (
    ArraySummary,
    GgufHeader,
    MetadataValue,
    Numbers,
    TensorInfo,
    ValueType,
)

__all__ = [
    "ArraySummary",
    "GgufHeader",
    "MetadataValue",
    "TensorInfo",
    "ValueType",
    "iterate_strings",
    "read_header",
]

# Bounds on what one file can cost; a vocabulary of 262,144 tokens with its merges takes 20 MB.
HEADER_BYTES_MAX: Final = 128 << 20
METADATA_KEYS_MAX: Final = 16_384
TENSORS_MAX: Final = 131_072
TEXT_BYTES_MAX: Final = 16 << 20
DECODED_ENTRIES_MAX: Final = 4_096
DECODED_ENTRIES_TOTAL_MAX: Final = 1 << 20

_KEY_BYTES_MAX: Final = 65_535
_TENSOR_NAME_BYTES_MAX: Final = 63
_DIMENSIONS_MAX: Final = 4
_DIMENSION_MAX: Final = (1 << 63) - 1
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_ALIGNMENT_KEY: Final = "general.alignment"
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


_LAYOUTS: Final[Mapping[ValueType, struct.Struct]] = MappingProxyType(
    {
        ValueType.UINT8: struct.Struct("<B"),
        ValueType.INT8: struct.Struct("<b"),
        ValueType.UINT16: struct.Struct("<H"),
        ValueType.INT16: struct.Struct("<h"),
        ValueType.UINT32: struct.Struct("<I"),
        ValueType.INT32: struct.Struct("<i"),
        ValueType.FLOAT32: struct.Struct("<f"),
        ValueType.BOOL: struct.Struct("<?"),
        ValueType.UINT64: struct.Struct("<Q"),
        ValueType.INT64: struct.Struct("<q"),
        ValueType.FLOAT64: struct.Struct("<d"),
    }
)


def read_header(path: Path, limit_bytes: int = HEADER_BYTES_MAX) -> GgufHeader:
    """Read metadata and tensor table of one file, in bounded time and memory.

    Raises ModelFileMissing or ModelFileUnreadable; the message says what was expected, what was
    seen, and at which byte.
    """
    with open_cursor(path, limit_bytes) as cursor:
        version = _read_version(cursor)
        n_tensors = _read_count(cursor, "tensors", TENSORS_MAX)
        n_keys = _read_count(cursor, "metadata keys", METADATA_KEYS_MAX)
        metadata = _read_metadata(cursor, n_keys)
        alignment = _alignment(cursor, metadata)
        tensors = [_read_tensor(cursor) for _ in range(n_tensors)]
        data_offset = cursor.position
        if tensors:
            data_offset += -data_offset % alignment
        return GgufHeader(
            path=path,
            version=version,
            metadata=MappingProxyType(metadata),
            tensors=MappingProxyType(_laid_out(cursor, tensors, alignment, data_offset)),
            alignment_bytes=alignment,
            data_offset_bytes=data_offset,
            file_size_bytes=cursor.size_bytes,
        )


def iterate_strings(path: Path, array: ArraySummary) -> Iterator[bytes]:
    """The strings of an array that `read_header` passed over, one at a time, undecoded.

    Raises as `read_header` does, also where the file changed since.
    """
    if array.element_type is not ValueType.STRING:
        raise ValueError(f"an array of {array.element_type.name} holds no strings")
    with open_cursor(path, array.offset_bytes + array.n_bytes) as cursor:
        cursor.seek(array.offset_bytes)
        for _ in range(array.count):
            yield cursor.take(cursor.number(_U64, "a string length"), "a string")


def _read_version(cursor: Cursor) -> int:
    if cursor.size_bytes == 0:
        raise cursor.unreadable("a GGUF file", "an empty file", fix="fetch it again")
    magic = cursor.take(min(4, cursor.size_bytes), "the magic")
    if magic != b"GGUF":
        raise cursor.unreadable("the magic b'GGUF'", repr(magic), byte=0, fix="not a GGUF file")
    version: int = cursor.number(_U32, "the version")
    if version in _VERSIONS:
        return version
    if version & 0xFFFF == 0:
        seen, fix = "a file in big-endian byte order", "convert it with gguf-convert-endian"
    elif version < _VERSIONS[0]:
        seen, fix = f"version {version}", "llama.cpp no longer reads it, convert the model again"
    else:
        seen, fix = f"version {version}", "it is newer than what is known here"
    raise cursor.unreadable("GGUF version 2 or 3", seen, byte=4, fix=fix)


def _read_count(cursor: Cursor, what: str, most: int) -> int:
    at = cursor.position
    count: int = cursor.number(_U64, f"the number of {what}")
    if count > most:
        raise cursor.unreadable(f"at most {most} {what}", str(count), byte=at)
    return count


def _read_metadata(cursor: Cursor, n_keys: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    text_left, entries_left = TEXT_BYTES_MAX, DECODED_ENTRIES_TOTAL_MAX
    for _ in range(n_keys):
        at = cursor.position
        key = _read_text(cursor, "a metadata key", min(_KEY_BYTES_MAX, text_left))
        text_left -= len(key)
        if not key or key in metadata:
            seen = f"{key[:80]!r} a second time" if key else "an empty one"
            raise cursor.unreadable("a new metadata key", seen, byte=at)
        value_type = _read_type(cursor, key)
        at = cursor.position
        if value_type is ValueType.STRING:
            metadata[key] = _read_text(cursor, _of(key), text_left)
            text_left -= cursor.position - at
        elif value_type is ValueType.ARRAY:
            metadata[key] = value = _read_array(cursor, key, entries_left)
            entries_left -= len(value) if isinstance(value, tuple) else 0
        else:
            metadata[key] = cursor.number(_LAYOUTS[value_type], _of(key))
    return metadata


def _read_array(cursor: Cursor, key: str, entries_left: int) -> Numbers | ArraySummary:
    at = cursor.position
    element = _read_type(cursor, key)
    if element is ValueType.ARRAY:
        raise cursor.unreadable(f"no array inside the array {key[:80]!r}", "one", byte=at)
    count: int = cursor.number(_U64, f"the length of {key[:80]!r}")
    start, digest = cursor.position, hashlib.blake2b(digest_size=32)
    if element is ValueType.STRING:
        cursor.skip_strings(count, digest, _of(key))
    elif count <= min(DECODED_ENTRIES_MAX, entries_left):
        layout = _LAYOUTS[element]
        raw = cursor.take(count * layout.size, _of(key))
        return struct.unpack(f"<{count}{layout.format[1:]}", raw)
    else:
        cursor.skip(count * _LAYOUTS[element].size, digest, _of(key))
    return ArraySummary(element, count, digest.hexdigest(), start, cursor.position - start)


def _read_type(cursor: Cursor, key: str) -> ValueType:
    at = cursor.position
    number: int = cursor.number(_U32, f"the type of {key[:80]!r}")
    try:
        return ValueType(number)
    except ValueError:
        expected = f"a value type from 0 to {max(ValueType)} for {key[:80]!r}"
        raise cursor.unreadable(expected, str(number), byte=at) from None


def _read_text(cursor: Cursor, what: str, most_bytes: int) -> str:
    at = cursor.position
    length: int = cursor.number(_U64, f"the length of {what}")
    if length > most_bytes:
        raise cursor.unreadable(f"at most {most_bytes} bytes of {what}", str(length), byte=at)
    return cursor.take(length, what).decode("utf-8", "replace")


def _of(key: str) -> str:
    return f"the value of {key[:80]!r}"


def _alignment(cursor: Cursor, metadata: Mapping[str, MetadataValue]) -> int:
    alignment = metadata.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    if type(alignment) is int and alignment > 0 and alignment & (alignment - 1) == 0:
        return alignment
    seen = alignment if isinstance(alignment, (int, float)) else type(alignment).__name__
    raise cursor.unreadable(f"a power of two as {_ALIGNMENT_KEY}", str(seen))


def _read_tensor(cursor: Cursor) -> TensorInfo:
    """One row of the tensor table; its size is still unknown (0)."""
    name = _read_text(cursor, "a tensor name", _TENSOR_NAME_BYTES_MAX)
    what = f"the shape of tensor {name!r}"
    at = cursor.position
    dimensions: int = cursor.number(_U32, what)
    if dimensions > _DIMENSIONS_MAX:
        raise cursor.unreadable(f"at most {_DIMENSIONS_MAX} dimensions", str(dimensions), byte=at)
    shape: tuple[int, ...] = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions, what))
    if any(length > _DIMENSION_MAX for length in shape):
        raise cursor.unreadable(f"lengths below 2**63 in {what}", str(shape), byte=at)
    type_id: int = cursor.number(_U32, f"the type of tensor {name!r}")
    offset: int = cursor.number(_U64, f"the place of tensor {name!r}")
    return TensorInfo(name, shape, type_id, offset, 0)


def _laid_out(cursor: Cursor, rows: list[TensorInfo], alignment: int, data_offset: int) -> dict[str, TensorInfo]:
    """The tensor table with sizes, each row checked against its place and the end of the file."""
    tensors: dict[str, TensorInfo] = {}
    data_bytes = cursor.size_bytes - data_offset
    expected = 0
    for index, row in enumerate(rows):
        if row.name in tensors:
            raise cursor.unreadable("every tensor once", f"{row.name!r} a second time")
        if row.offset_bytes != expected:
            place = f"tensor {row.name!r} at data byte {expected}"
            raise cursor.unreadable(place, f"data byte {row.offset_bytes}")
        following = rows[index + 1].offset_bytes if index + 1 < len(rows) else data_bytes
        size = _size(cursor, row, following)
        if size > data_bytes - expected:
            raise cursor.unreadable(
                f"{size} bytes of tensor {row.name!r}",
                f"the end of the file at byte {cursor.size_bytes}",
                byte=data_offset + expected,
                fix="the file is truncated or damaged, fetch it again",
            )
        tensors[row.name] = replace(row, n_bytes=size)
        expected += size + -size % alignment
    return tensors


def _size(cursor: Cursor, row: TensorInfo, following_bytes: int) -> int:
    if row.type_id in REMOVED_TENSOR_TYPES:
        fix = "llama.cpp removed this format, fetch or convert the model again"
        expected = f"a type that llama.cpp still reads for tensor {row.name!r}"
        raise cursor.unreadable(expected, tensor_type_name(row.type_id), fix=fix)
    try:
        size = tensor_bytes(row.type_id, row.shape)
    except ValueError as error:
        raise cursor.unreadable(f"whole blocks in tensor {row.name!r}", str(error)) from None
    return max(0, following_bytes - row.offset_bytes) if size is None else size
