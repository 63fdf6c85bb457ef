"""Ends of servers as they were really printed (llama.cpp build 11434 and xllamacpp 11549)."""

import pytest

from app.llama_server.log_lines import failure_of

NORMAL = [
    "0.00.006.185 I srv    load_model: loading model 'gemma.gguf'",
    "0.01.409.400 I common_speculative_init_result: loading draft model 'gemma.gguf'",
]
BAD_MODEL = "0.00.050.000 E srv  llama_server: exiting due to model loading error"


@pytest.mark.parametrize(
    ("exit_code", "lines", "reason", "said"),
    [
        (1, ["error: invalid argument: --draft-maxx"], "flag-unknown", "--draft-maxx"),
        (1, ["error: the argument has been removed. use --spec-draft-n-max"], "flag-unknown", "removed"),
        (1, ["error: the embedded engine cannot honour --device: no choice of devices"], "flag-unknown", "--device"),
        (1, ['error while handling argument "-fa": error: unknown value'], "flag-value", "-fa"),
        (1, ["error: invalid device: 0"], "flag-value", "invalid device"),
        (
            1,
            ["0.00.020.000 E couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1"],
            "address-in-use",
            "bind",
        ),
        (1, ["0.10.0.0 E failed to allocate buffer for kv cache", BAD_MODEL], "out-of-memory", "kv cache"),
        (1, ["ggml_cuda: cudaMalloc failed: out of memory", BAD_MODEL], "out-of-memory", "cudaMalloc"),
        (1, ["gguf_init_from_file: invalid magic characters", BAD_MODEL], "bad-model", "invalid magic"),
        (1, ["0.00.1 E failed to create MTP context", BAD_MODEL], "draft-failed", "MTP"),
        (-9, NORMAL, "killed-by-signal-9", "killed by signal 9"),
        (-6, [*NORMAL, "x.cpp:576: GGML_ASSERT(add_ok) failed"], "killed-by-signal-6", "GGML_ASSERT(add_ok)"),
        (3, NORMAL, "exited", "code 3"),
    ],
)
def test_each_end_has_its_name(exit_code: int, lines: list[str], reason: str, said: str) -> None:
    failure = failure_of(exit_code, [*NORMAL, *lines])
    assert failure.reason == reason
    assert said in failure.message
    assert failure.last_lines[-1] == [*NORMAL, *lines][-1]


def test_the_normal_error_of_memory_fitting_is_not_the_reason() -> None:
    harmless = (
        "0.00.1 E DFlash requires ctx_other to be set (this warning is normal during memory fitting): failed to load"
    )
    failure = failure_of(1, [harmless, "error: invalid argument: --x"])
    assert failure.reason == "flag-unknown"
    assert harmless not in failure.last_lines
    assert failure_of(1, [harmless]).reason == "exited"


def test_a_time_stamp_is_left_out_and_lines_are_bounded() -> None:
    failure = failure_of(1, [f"line {number}" for number in range(500)] + ["0.00.020.000 E out of memory"])
    assert failure.message == "The server exited with code 1: out of memory"
    assert len(failure.last_lines) == 20
