"""Which layers attend how: what llama.cpp knows of each architecture beside the keys of a file.

The tables are facts of llama.cpp build 11434 (the loaders of its models).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How an architecture lays out its windowed layers where the file gives no pattern.

    Of every `period` layers one sees everything: the last, or with `dense_first` the first; a period of 0 leaves none.
    `default_window` is taken where the key is absent (None: no window then), `fixed_window` whatever the file says;
    with `only_blocks` models of another depth have no window at all.
    """

    period: int
    dense_first: bool = False
    default_window: int | None = None
    fixed_window: int | None = None
    only_blocks: int | None = None


WINDOW_RULES: Final[Mapping[str, WindowRule]] = MappingProxyType(
    {
        "afmoe": WindowRule(4),
        "cohere2": WindowRule(4),
        "cohere2moe": WindowRule(4, dense_first=True),
        "deepseek4": WindowRule(0),
        "exaone-moe": WindowRule(4, default_window=128),
        "exaone4": WindowRule(4, default_window=4096, only_blocks=64),
        "gemma2": WindowRule(2, default_window=4096),
        "gemma3": WindowRule(6),
        "gemma3n": WindowRule(5),
        "gpt-oss": WindowRule(2),
        "laguna": WindowRule(4, dense_first=True),
        "llama4": WindowRule(4, fixed_window=8192),
        "mellum": WindowRule(4),
        "muse-glimmer": WindowRule(4),
        "olmo2": WindowRule(4),
        "plamo3": WindowRule(8),
        "smallthinker": WindowRule(4, dense_first=True, fixed_window=4096),
    }
)
# Windowed only by the pattern in the file.
WINDOW_FROM_FILE: Final = frozenset(
    {"dflash", "dots3note", "gemma4", "gemma4-assistant", "granite_swa", "maple", "mimo2", "spark2_5", "step35"}
)
# They name a window and ignore it.
WINDOW_IGNORED: Final = frozenset({"phi3"})

FULL_ATTENTION_INTERVAL: Final = 4
DELTA_NETS: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
# A layer is recurrent where it has no key heads (and, for Nemotron, no feed-forward either).
RECURRENT_WITHOUT_HEADS: Final = frozenset(
    {
        "bailingmoe3",
        "granitehybrid",
        "jamba",
        "kimi-k3",
        "kimi-linear",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "plamo2",
    }
)
RECURRENT_EVERYWHERE: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
ATTENDING_AND_RECURRENT: Final = frozenset({"falcon-h1"})
# A rejected draft is undone by states kept for each draft token; others keep checkpoints on the host.
ROLLBACK: Final = frozenset(
    {
        "bailingmoe3",
        "deepseek4",
        "glm5-next",
        "kimi-k3",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
    }
)
# Memory or graphs of their own kind that are not modelled here.
UNMODELLED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepseek32": "the cache and the scores of its sparse-attention indexer",
        "dots3note": "the cache and the scores of its sparse-attention indexer",
        "glm-dsa": "the cache and the scores of its sparse-attention indexer",
        "glm5-next": "the cache and the scores of its sparse-attention indexer",
        "hy_v4": "the cache and the scores of its sparse-attention indexer",
        "minimax-01": "the states of its linear attention",
        "minimax-m3": "the cache and the scores of its sparse-attention indexer",
        "qwen4exp": "the cache and the scores of its sparse-attention indexer",
        "deepseek4": "the compute buffers of its indexer and of its hyper-connections",
        "kimi-k3": "the states of its delta attention",
        "t5": "the cache of its encoder",
    }
)
# Attention and feed-forward read the same input and are added up together.
PARALLEL: Final = frozenset({"cohere2", "command-r", "falcon", "gptneox", "phi2", "stablelm"})
# Architectures whose buffers were measured; of others the general formulas are taken, and said to be unproven.
MEASURED: Final = frozenset(
    {
        "cohere2",
        "deepseek2",
        "dflash",
        "dots1",
        "eagle3",
        "gemma2",
        "gemma3",
        "glm4moe",
        "gpt-oss",
        "laguna",
        "llama",
        "llama4",
        "minimax-m2",
        "mistral3",
        "qwen2",
        "qwen3",
        "qwen35",
        "qwen35moe",
        "qwen3moe",
        "qwen3next",
    }
)
