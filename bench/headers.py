"""How fast a model's header is read: ours beside the reader of the `gguf` package, on the same file in one run."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

from app.inventory.models import read_model

_TOKENS, _TOKENS_QUICK = 150_000, 20_000
_ROUNDS = 5


def run(*, quick: bool = False) -> None:
    """Print the medians and their ratio."""
    tokens = _TOKENS_QUICK if quick else _TOKENS
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        path = Path(folder) / "large-vocabulary.gguf"
        _write(path, tokens)
        ours = _median_seconds(lambda: read_model(path), _ROUNDS)
        theirs = _median_seconds(lambda: gguf.GGUFReader(path), 1)
    print(f"header with {tokens:,} tokens and as many merges, median seconds")
    print(f"  ours              {ours:8.4f}")
    print(f"  gguf.GGUFReader   {theirs:8.4f}   {theirs / ours:.0f} times ours")


def _write(path: Path, tokens: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(32)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token-{number}" for number in range(tokens)])
    writer.add_token_merges([f"left{number} right{number}" for number in range(tokens)])
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _median_seconds(act: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
