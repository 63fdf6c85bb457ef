"""The tables of types against the engine itself and against the `gguf` package."""

import ctypes
from pathlib import Path

import gguf
import pytest
import xllamacpp

from app.inventory.ggml_types import FILE_TYPES, REMOVED_TENSOR_TYPES, TENSOR_TYPES, tensor_bytes


def test_tensor_types_are_those_of_the_engine() -> None:
    library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_name.restype = ctypes.c_char_p
    for type_id, known in TENSOR_TYPES.items():
        assert library.ggml_type_name(type_id).decode().upper() == known.name.upper()
        assert library.ggml_blck_size(type_id) == known.block_elements
        assert library.ggml_type_size(type_id) == known.block_bytes
    for type_id in REMOVED_TENSOR_TYPES:
        assert library.ggml_type_size(type_id) == 0


def test_type_names_are_those_of_the_gguf_package() -> None:
    for type_id in gguf.GGML_QUANT_SIZES:
        assert TENSOR_TYPES[int(type_id)].name == type_id.name
    theirs = {int(each): each.name.removeprefix("MOSTLY_").removeprefix("ALL_") for each in gguf.LlamaFileType}
    theirs.pop(1024)
    assert dict(FILE_TYPES) == theirs


def test_tensor_bytes_counts_blocks() -> None:
    assert tensor_bytes(12, (512, 3)) == 2 * 144 * 3
    assert tensor_bytes(0, ()) == 4
    assert tensor_bytes(0, (0, 5)) == 0
    assert tensor_bytes(999, (1,)) is None
    with pytest.raises(ValueError, match="whole blocks of 256"):
        tensor_bytes(12, (100,))
