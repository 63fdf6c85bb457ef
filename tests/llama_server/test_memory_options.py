"""Extra arguments that move bytes, read as the engine would read them."""

import pytest
from fixtures.cases import engine

from app.llama_server.memory_options import memory_options
from app.placement.options import EngineOptions

FLAGS = engine().flags


def test_nothing_said_is_the_engine_s_own_way() -> None:
    assert memory_options([], FLAGS) == EngineOptions()
    assert memory_options(["--temp", "0.7"], FLAGS) == EngineOptions()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-nkvo"], EngineOptions(kv_on_devices=False)),
        (["--no-kv-offload", "--kv-offload"], EngineOptions()),
        (["--swa-full"], EngineOptions(full_windows=True)),
        (["--no-repack"], EngineOptions(repacks=False)),
        (["--no-host"], EngineOptions(pinned_host=False)),
        (["--no-op-offload"], EngineOptions(offloads_ops=False)),
        (["--no-op-offload", "--op-offload"], EngineOptions()),
        (["--load-mode", "none"], EngineOptions(maps_files=False)),
        (["--load-mode", "mmap"], EngineOptions()),
        (["--load-mode", "mlock"], EngineOptions(maps_files=False)),
        (["--n-cpu-ffn", "7"], EngineOptions(cpu_ffn_layers=7)),
        (["-ncffn", "7", "-ncffn", "3"], EngineOptions(cpu_ffn_layers=3)),
        (["-ncffn", "many"], EngineOptions()),
        (["--ctx-checkpoints", "4"], EngineOptions(context_checkpoints=4)),
        (["--embeddings"], EngineOptions(keeps_all_outputs=True)),
        (["--pooling", "mean"], EngineOptions(keeps_all_outputs=True)),
        (["--pooling", "none"], EngineOptions()),
        (["--no-mmproj-offload"], EngineOptions(projector_on_device=False)),
        (["--moe-cache-mib", "512"], EngineOptions(expert_cache_bytes=512 << 20)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_changes_what_it_says(words: list[str], expected: EngineOptions) -> None:
    assert memory_options(words, FLAGS) == expected
