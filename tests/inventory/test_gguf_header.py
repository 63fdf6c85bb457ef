"""Typed access to metadata: absent is None, another kind of value is refused."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.gguf_bytes import array, entry, file_bytes, write_every_type

from app.errors import ModelFileUnreadable
from app.inventory.gguf import read_header


def test_typed_access(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    write_every_type(path)
    header = read_header(path)
    assert header.text("t.text") == "paceline → ünï"
    assert header.flag("t.yes") is True
    assert header.count("t.u16", 65_535) == 65_000
    assert header.integers("t.ints") == (1, -2, 3)
    assert (header.length("t.ints"), header.length("t.strings")) == (3, 3)
    for read in (header.text, header.flag, header.integers, header.length):
        assert read("t.absent") is None
    assert header.count("t.absent", 1) is None


def test_typed_access_refuses_values_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    write_every_type(path)
    header = read_header(path)
    wrong: list[Callable[[], object]] = [
        lambda: header.text("t.u8"),
        lambda: header.flag("t.u8"),
        lambda: header.count("t.yes", 9),
        lambda: header.count("t.i8", 9),
        lambda: header.count("t.u16", 64_999),
        lambda: header.count("t.ints", 9),
        lambda: header.count("t.f32", 9),
        lambda: header.count("t.strings", 9),
        lambda: header.integers("t.bools"),
        lambda: header.integers("t.floats"),
        lambda: header.integers("t.u8"),
        lambda: header.length("t.text"),
    ]
    for read in wrong:
        with pytest.raises(ModelFileUnreadable, match=r"expected .* as t\.\w+, saw"):
            read()


def test_a_count_given_per_layer_is_its_largest(written: Callable[[bytes], Path]) -> None:
    header = read_header(written(file_bytes((entry("k", 9, array(4, 3, struct.pack("<3I", 2, 9, 4))),))))
    assert header.count("k", 10) == 9
