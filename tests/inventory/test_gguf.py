"""What the header reader gives for true files of every kind, fast and in little memory."""

import hashlib
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from fixtures.gguf_bytes import (
    ARCHITECTURE,
    MEMORY_MAX_BYTES,
    array,
    entry,
    file_bytes,
    string,
    tensor,
    write_every_type,
)

from app.inventory.gguf import ArraySummary, ValueType, iterate_strings, read_header


def test_every_value_type_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    write_every_type(path)
    header = read_header(path)
    values = {key: value for key, value in header.metadata.items() if key.startswith("t.")}
    strings = values.pop("t.strings")
    assert values == {
        "t.u8": 250,
        "t.i8": -5,
        "t.u16": 65_000,
        "t.i16": -30_000,
        "t.u32": 4_000_000_000,
        "t.i32": -2_000_000_000,
        "t.u64": 2**63 + 1,
        "t.i64": -(2**62),
        "t.f32": 0.5,
        "t.f64": 0.1,
        "t.yes": True,
        "t.no": False,
        "t.text": "paceline → ünï",
        "t.ints": (1, -2, 3),
        "t.floats": (0.25, 0.5),
        "t.bools": (True, False, True),
    }
    assert values["t.yes"] is True
    assert isinstance(strings, ArraySummary)
    assert (strings.element_type, strings.count) == (ValueType.STRING, 3)
    assert list(iterate_strings(path, strings)) == [b"a", b"", b"ccc"]


def test_every_array_element_type_is_decoded(written: Callable[[bytes], Path]) -> None:
    samples = {
        ValueType.UINT8: ("<3B", (1, 2, 255)),
        ValueType.INT8: ("<3b", (1, -2, 127)),
        ValueType.UINT16: ("<3H", (1, 2, 65_535)),
        ValueType.INT16: ("<3h", (1, -2, 32_767)),
        ValueType.UINT32: ("<3I", (1, 2, 2**32 - 1)),
        ValueType.INT32: ("<3i", (1, -2, 2**31 - 1)),
        ValueType.FLOAT32: ("<3f", (0.5, -1.0, 2.0)),
        ValueType.BOOL: ("<3?", (True, False, True)),
        ValueType.UINT64: ("<3Q", (1, 2, 2**64 - 1)),
        ValueType.INT64: ("<3q", (1, -2, 2**63 - 1)),
        ValueType.FLOAT64: ("<3d", (0.1, -1.0, 2.0)),
    }
    assert set(samples) == set(ValueType) - {ValueType.STRING, ValueType.ARRAY}
    entries = tuple(
        entry(element.name, 9, array(element, 3, struct.pack(layout, *values)))
        for element, (layout, values) in samples.items()
    )
    header = read_header(written(file_bytes(entries)))
    assert dict(header.metadata) == {element.name: values for element, (_, values) in samples.items()}


def test_tensors_agree_with_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    write_every_type(path)
    header, theirs = read_header(path), gguf.GGUFReader(path)
    assert list(header.tensors) == ["token_embd.weight", "half", "blocks"]
    assert header.data_offset_bytes == theirs.data_offset
    assert header.file_size_bytes == path.stat().st_size
    for other in theirs.tensors:
        ours = header.tensors[other.name]
        assert ours.shape == tuple(other.shape.tolist())
        assert ours.type_id == other.tensor_type
        assert ours.n_bytes == other.n_bytes
        assert header.data_offset_bytes + ours.offset_bytes == other.data_offset


@pytest.mark.parametrize("version", [2, 3])
def test_versions_two_and_three_are_read(written: Callable[[bytes], Path], version: int) -> None:
    header = read_header(written(file_bytes((ARCHITECTURE,), version=version)))
    assert (header.version, dict(header.metadata), dict(header.tensors)) == (
        version,
        {"general.architecture": "llama"},
        {},
    )


def test_alignment_is_taken_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    writer.add_tensor("a", np.zeros((3,), dtype=np.float32))
    writer.add_tensor("b", np.zeros((3,), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(path)
    assert header.alignment_bytes == 256
    assert header.data_offset_bytes % 256 == 0
    assert header.tensors["b"].offset_bytes == 256


def test_long_arrays_are_summed_up_not_decoded(written: Callable[[bytes], Path]) -> None:
    numbers = struct.pack("<5000f", *range(5000))
    texts = b"".join(string(f"token-{index}") for index in range(5000))
    path = written(file_bytes((entry("n", 9, array(6, 5000, numbers)), entry("s", 9, array(8, 5000, texts)))))
    found = read_header(path).metadata
    for key, raw, element in (("n", numbers, ValueType.FLOAT32), ("s", texts, ValueType.STRING)):
        summary = found[key]
        assert isinstance(summary, ArraySummary)
        assert (summary.count, summary.element_type, summary.n_bytes) == (5000, element, len(raw))
        assert summary.digest == hashlib.blake2b(raw, digest_size=32).hexdigest()
        content = path.read_bytes()
        assert content[summary.offset_bytes : summary.offset_bytes + summary.n_bytes] == raw


def test_strings_across_window_borders_are_skipped_whole(written: Callable[[bytes], Path]) -> None:
    texts = [b"x" * length for length in (1_048_570, 3_000_000, 0, 7, 1_048_576, 1_048_568, 5)]
    raw = b"".join(map(string, texts))
    path = written(file_bytes((entry("s", 9, array(8, len(texts), raw)), ARCHITECTURE)))
    header = read_header(path)
    summary = header.metadata["s"]
    assert isinstance(summary, ArraySummary)
    assert summary.digest == hashlib.blake2b(raw, digest_size=32).hexdigest()
    assert header.metadata["general.architecture"] == "llama"
    assert list(iterate_strings(path, summary)) == texts


def test_a_large_vocabulary_is_read_fast_and_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    count = 262_144
    tokens = b"".join(string(f"token{index}") for index in range(count))
    path.write_bytes(
        file_bytes(
            (
                entry("tokenizer.ggml.tokens", 9, array(8, count, tokens)),
                entry("tokenizer.ggml.scores", 9, array(6, count, bytes(4 * count))),
                entry("tokenizer.ggml.token_type", 9, array(5, count, bytes(4 * count))),
            )
        )
    )
    tracemalloc.start()
    read_header(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < MEMORY_MAX_BYTES


def test_a_sparse_file_costs_no_more_than_its_header(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    size = 300 << 30
    path.write_bytes(file_bytes((ARCHITECTURE,), (tensor("w", (1 << 20, size >> 22)),)))
    os.truncate(path, path.stat().st_size + size)
    assert read_header(path).tensors["w"].n_bytes == size


def test_a_type_newer_than_the_table_is_sized_by_its_room(written: Callable[[bytes], Path]) -> None:
    rows = (tensor("new", (32,), 999, 0), tensor("known", (4,), 0, 64))
    header = read_header(written(file_bytes((ARCHITECTURE,), rows, bytes(80))))
    assert header.tensors["new"].n_bytes == 64
    assert header.tensors["new"].type_name == "type-999"
    assert header.tensors["known"].n_bytes == 16
