"""Files that lie or were damaged: each a named error, in bounded time and memory."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.gguf_bytes import ARCHITECTURE, array, entry, file_bytes, refusal, string, tensor, write_every_type
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import ModelFileError, ModelFileUnreadable
from app.inventory.gguf import ArraySummary, ValueType, iterate_strings, read_header

HUGE = 1 << 60
LIES: dict[str, tuple[bytes, str]] = {
    "magic": (b"PK\x03\x04" + bytes(60), r"expected the magic b'GGUF' at byte 0, saw b'PK"),
    "short magic": (b"GG", r"magic"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), r"at byte 4, saw a file in big-endian"),
    "version 0": (file_bytes(version=0), "big-endian|version 0"),
    "version 1": (file_bytes(version=1), r"expected GGUF version 2 or 3 at byte 4, saw version 1"),
    "version 4": (file_bytes(version=4), r"version 4.*newer"),
    "tensor count": (file_bytes((ARCHITECTURE,), n_tensors=HUGE), rf"at most \d+ tensors at byte 8, saw {HUGE}"),
    "key count": (file_bytes((ARCHITECTURE,), n_entries=HUGE), rf"metadata keys at byte 16, saw {HUGE}"),
    "one key too many": (file_bytes((ARCHITECTURE,), n_entries=2), "truncated"),
    "key length": (file_bytes((struct.pack("<Q", HUGE),)), rf"at most \d+ bytes of a metadata key.*saw {HUGE}"),
    "empty key": (file_bytes((entry("", 4, bytes(4)),)), "saw an empty one"),
    "string length": (file_bytes((entry("k", 8, struct.pack("<Q", HUGE)),)), rf"the value of 'k'.*saw {HUGE}"),
    "string past the end": (file_bytes((entry("k", 8, struct.pack("<Q", 99)),)), "end of the file"),
    "array length": (file_bytes((entry("k", 9, array(4, HUGE, b"")),)), "end of the file"),
    "array just too long": (file_bytes((entry("k", 9, array(4, 3, bytes(8))),)), "end of the file"),
    "string array length": (file_bytes((entry("k", 9, array(8, HUGE, b"")),)), "end of the file"),
    "string in array": (file_bytes((entry("k", 9, array(8, 1, struct.pack("<Q", HUGE))),)), "end of the file"),
    "nested array": (file_bytes((entry("k", 9, array(9, 1, array(4, 1, bytes(4)))),)), "no array inside the array 'k'"),
    "value type": (file_bytes((entry("k", 13, bytes(8)),)), "type from 0 to 12 for 'k'.*saw 13"),
    "element type": (file_bytes((entry("k", 9, array(77, 1, bytes(8))),)), "saw 77"),
    "duplicate key": (file_bytes((ARCHITECTURE, ARCHITECTURE)), "'general.architecture' a second time"),
    "duplicate tensor": (
        file_bytes((), (tensor("w", (8,), 0, 0), tensor("w", (8,), 0, 32)), bytes(64)),
        "'w' a second time",
    ),
    "alignment 0": (file_bytes((entry("general.alignment", 4, bytes(4)),)), "power of two"),
    "alignment 48": (file_bytes((entry("general.alignment", 4, struct.pack("<I", 48)),)), "power of two.*saw 48"),
    "alignment text": (file_bytes((entry("general.alignment", 8, string("32")),)), "power of two.*saw str"),
    "alignment bool": (file_bytes((entry("general.alignment", 7, b"\1"),)), "power of two.*saw True"),
    "tensor name": (file_bytes((), (tensor("n" * 64, (8,)),), bytes(32)), "at most 63 bytes of a tensor name"),
    "dimensions": (file_bytes((), (tensor("w", (1, 1, 1, 1, 1)),), bytes(32)), "at most 4 dimensions.*saw 5"),
    "dimension": (file_bytes((), (tensor("w", (2**63, 0)),)), r"below 2\*\*63"),
    "shape beyond all files": (file_bytes((), (tensor("w", (2**62,) * 4),)), "end of the file"),
    "data past the end": (
        file_bytes((), (tensor("w", (9,)),), bytes(35)),
        "expected 36 bytes of tensor 'w' at byte 64",
    ),
    "no data at all": (file_bytes((), (tensor("w", (9,)),)), "36 bytes of tensor 'w'"),
    "tensor place": (file_bytes((), (tensor("w", (8,), 0, HUGE),), bytes(32)), rf"data byte 0.*saw data byte {HUGE}"),
    "overlap": (
        file_bytes((), (tensor("a", (8,)), tensor("b", (8,))), bytes(64)),
        "tensor 'b' at data byte 32.*saw data byte 0",
    ),
    "removed type": (file_bytes((), (tensor("w", (32,), 31),), bytes(32)), "removed this format"),
    "half a block": (file_bytes((), (tensor("w", (33,), 8),), bytes(64)), "whole blocks of 32"),
    "unknown type past the end": (file_bytes((), (tensor("w", (33,), 999, 64),), bytes(32)), "data byte 0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_named_in_bounded_time_and_memory(written: Callable[[bytes], Path], lie: str) -> None:
    content, message = LIES[lie]
    error = refusal(written(content))
    assert error.code == "model-file-unreadable"
    with pytest.raises(ModelFileUnreadable, match=message):
        raise error
    assert error.details["path"].endswith("hand-made.gguf")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "types.gguf"
    write_every_type(whole)
    header = read_header(whole)
    last = header.tensors["blocks"]
    needed = header.data_offset_bytes + last.offset_bytes + last.n_bytes
    os.truncate(whole, needed)
    assert read_header(whole).tensors == header.tensors
    for length in reversed(range(needed)):
        os.truncate(whole, length)
        with pytest.raises(ModelFileUnreadable):
            read_header(whole)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(entry("k", 9, array(8, 1 << 34, b"")), id="strings in a hole"),
        pytest.param(entry("k", 9, array(0, 1 << 36, b"")), id="bytes in a hole"),
        pytest.param(entry("k", 9, array(8, 1, struct.pack("<Q", 1 << 37))), id="one string over a hole"),
    ],
)
def test_holes_do_not_make_a_header_endless(written: Callable[[bytes], Path], head: bytes) -> None:
    """A sparse file makes any length true, so lengths need a bound of their own."""
    path = written(file_bytes((head,)))
    os.truncate(path, 1 << 38)
    assert "a header within" in refusal(path).message


def test_many_small_strings_end_at_the_header_limit(written: Callable[[bytes], Path]) -> None:
    path = written(file_bytes((entry("k", 9, array(8, 200_000, b"")), ARCHITECTURE)))
    os.truncate(path, 1 << 30)
    with pytest.raises(ModelFileUnreadable, match="within 1000000 bytes"):
        read_header(path, limit_bytes=1_000_000)


def test_text_in_all_keys_together_is_bounded(written: Callable[[bytes], Path]) -> None:
    text = string(b"x" * (6 << 20))
    path = written(file_bytes(tuple(entry(f"k{index}", 8, text) for index in range(4))))
    with pytest.raises(ModelFileUnreadable, match="bytes of the value of 'k2'"):
        read_header(path)


def test_text_that_is_not_utf8_stays_printable(written: Callable[[bytes], Path]) -> None:
    header = read_header(written(file_bytes((entry("general.name", 8, string(b"caf\xe9 \xed\xa0\x80")),))))
    name = header.text("general.name")
    assert name is not None
    assert name.startswith("caf�")
    name.encode("utf-8")


def test_a_file_that_shrinks_after_it_was_read_is_refused_by_iterate_strings(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    write_every_type(path)
    strings = read_header(path).metadata["t.strings"]
    assert isinstance(strings, ArraySummary)
    os.truncate(path, strings.offset_bytes + 4)
    with pytest.raises(ModelFileUnreadable):
        list(iterate_strings(path, strings))
    with pytest.raises(ValueError, match="no strings"):
        list(iterate_strings(path, ArraySummary(ValueType.INT8, 1, "", 0, 1)))


VALID = file_bytes(
    (
        ARCHITECTURE,
        entry("llama.block_count", 4, struct.pack("<I", 2)),
        entry("llama.rope.freq_base", 6, struct.pack("<f", 1e6)),
        entry("tokenizer.ggml.tokens", 9, array(8, 3, string("a") + string("bb") + string("ccc"))),
        entry("tokenizer.ggml.token_type", 9, array(5, 3, struct.pack("<3i", 1, 1, 1))),
        entry("tokenizer.ggml.add_bos_token", 7, b"\1"),
    ),
    (tensor("token_embd.weight", (8, 3)), tensor("blk.0.attn_q.weight", (32, 2), 8, 96)),
    bytes(96 + 68),
)


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    flips=st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=8),
    length=st.one_of(st.just(len(VALID)), st.integers(0, len(VALID))),
)
def test_a_damaged_file_gives_a_header_or_a_named_error(
    tmp_path: Path, flips: list[tuple[int, int]], length: int
) -> None:
    content = bytearray(VALID)
    for at, value in flips:
        content[at] = value
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content[:length])
    try:
        header = read_header(path)
    except ModelFileError as error:
        error.message.encode("utf-8")
    else:
        assert sum(each.n_bytes for each in header.tensors.values()) <= length
        assert header.file_size_bytes == length
