"""Near names: what may have been meant is named, and nothing where all that is known is unlike."""

import pytest

from app.near_names import near_names

FLAGS = (
    "--ctx-size",
    "--slot-save-path",
    "--temp",
    "--temperature",
    "--n-gpu-layers",
    "--no-mmap",
    "--flash-attn",
    "-s",
)
FILES = ("Qwen3-8B-Q4_K_M.gguf", "draft.gguf", "dspark.gguf", "mtp-moe.gguf")


@pytest.mark.parametrize(
    ("wanted", "names", "near"),
    [
        ("--ctx-sise", FLAGS, ["--ctx-size"]),
        ("-ctx_size", FLAGS, ["--ctx-size"]),
        ("--slot-save", FLAGS, ["--slot-save-path"]),
        ("--flash-attention", FLAGS, ["--flash-attn"]),
        ("--temperatur", FLAGS, ["--temperature"]),
        ("qwen3-8b-q8_0.gguf", FILES, ["Qwen3-8B-Q4_K_M.gguf"]),
        ("DRAFT.GGUF", FILES, ["draft.gguf"]),
        ("qwen", ("qwen3-mtp", "gemma"), ["qwen3-mtp"]),
        ("qwen3-mpt", ("qwen3-mtp", "gemma"), ["qwen3-mtp"]),
    ],
)
def test_what_is_alike(wanted: str, names: tuple[str, ...], near: list[str]) -> None:
    assert near_names(wanted, names) == near


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("--no-such-flag", FLAGS),
        ("--frobnicate", FLAGS),
        ("-x", FLAGS),
        ("dense.gguf", FILES),
        ("moe.gguf", FILES),
        ("nothing", ("mtp-nothing-x", "coder")),
        ("chat", ("coder", "llama")),
        ("absent", ("agent",)),
        ("", FILES),
    ],
)
def test_what_is_not(wanted: str, names: tuple[str, ...]) -> None:
    assert near_names(wanted, names) == []


def test_at_most_so_many_and_the_best_first() -> None:
    names = [f"model-{letter}" for letter in "abcdefg"]
    assert near_names("model-c", names, most=2)[0] == "model-c"
    assert len(near_names("model", names)) == 3
