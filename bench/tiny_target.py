"""The smallest GGUF file that is a target model to Paceline's check: a true header, and zeros for weights.

Source: gguf-py of llama.cpp, format version 3; all numbers are little-endian.
"""

import math
import struct
from pathlib import Path

_UINT32, _STRING = 4, 8
_F32 = 0
_ALIGNMENT_BYTES = 32
_WIDTH, _TOKENS = 32, 8


def write_tiny_target(path: Path) -> None:
    """Write a model of one layer; no engine could run it."""
    metadata = [
        _text_entry("general.architecture", "llama"),
        *(
            _string(f"llama.{key}") + struct.pack("<II", _UINT32, value)
            for key, value in (("block_count", 1), ("context_length", 8192), ("embedding_length", _WIDTH))
        ),
    ]
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (_WIDTH, _TOKENS),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "output_norm.weight": (_WIDTH,),
    }
    tensors, data_bytes = [], 0
    for name, shape in shapes.items():
        tensors.append(_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _F32, data_bytes))
        data_bytes += 4 * math.prod(shape)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)) + b"".join(metadata) + b"".join(tensors)
    path.write_bytes(head + bytes(-len(head) % _ALIGNMENT_BYTES) + bytes(data_bytes))


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode("ascii")


def _text_entry(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", _STRING) + _string(value)
