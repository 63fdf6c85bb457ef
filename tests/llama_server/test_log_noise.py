"""Lines as build 11434 and the embedded engine print them."""

import pytest

from app.llama_server.log_noise import lists_cached_prompts


@pytest.mark.parametrize(
    "line",
    [
        "0.00.036.285 I srv          load:    - prompt with length      48, lcp =       0, f_keep = 0.000",
        "61.00.029.309 I srv        update:    - prompt 0x557138536f90:      48 tokens, checkpoints:  0,     0.048 MiB",
    ],
)
def test_entries_of_the_prompt_cache_are_noise(line: str) -> None:
    assert lists_cached_prompts(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "0.00.016.866 I srv        update:  - cache state: 9 prompts, 0.4 MiB (limits: 8192.000 MiB, 512 tokens)",
        "0.00.036.285 I srv          load:  - looking for better prompt, base f_keep = -1.000, f_sim = 0.000",
        "0.00.036.285 W srv        update:    - prompt cache is full",
        "root ::= x:    - prompt 0x1",
        "0.00.006.743 I load_tensors:   CPU_Mapped model buffer size =     0.44 MiB",
    ],
)
def test_everything_else_is_kept(line: str) -> None:
    assert not lists_cached_prompts(line)
