"""The embedded engine as a process: its questions, its errors, its life and its end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import xllamacpp
from fixtures.embedded_engine import COMMAND, ROOT, EmbeddedEngine, UnixConnection, ask, environment, loaded
from fixtures.tiny_models import TinyModels, write_all

from app.llama_server.embedded.__main__ import device_text
from app.llama_server.embedded.flag_table import FLAGS
from app.llama_server.embedded.overrides import expert_layer_overrides
from app.llama_server.embedded.speculative_flags import SPEC_TYPES
from app.llama_server.help_text import parse_devices, parse_flags, parse_spec_types

ENDLESS = {"prompt": "hello abc", "n_predict": -1, "ignore_eos": True}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return write_all(tmp_path_factory.mktemp("models"))


@pytest.fixture
def arguments(models: TinyModels) -> tuple[str, ...]:
    return ("-m", str(models.dense_target), "-t", "1", "-c", "512")


def test_help_lists_every_flag_in_the_layout_of_llama_server() -> None:
    answer = ask("--help")
    listed = parse_flags(answer.stdout)
    assert answer.returncode == 0
    for flag in FLAGS:
        for name in (*flag.names, *flag.off):
            assert listed[name].takes_value == flag.takes_value, name
            assert listed[name].text.replace(" ", "") == flag.meaning.replace(" ", ""), name
    assert parse_spec_types(listed, answer.stdout) == frozenset(SPEC_TYPES)


@pytest.mark.parametrize("question", ["--help", "--version"])
def test_a_question_does_not_load_the_package(question: str) -> None:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], question]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    assert "app.llama_server.embedded" in done.stderr
    assert not re.search(r"\| +xllamacpp", done.stderr)


def test_version_is_told_on_stderr() -> None:
    answer = ask("--version")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert re.fullmatch(r"version: embedded engine \(xllamacpp \d{4}\.\d+\.\d+\)\n", answer.stderr)


def test_devices_of_this_host() -> None:
    answer = ask("--list-devices")
    assert answer.returncode == 0
    assert answer.stdout == device_text(xllamacpp.get_device_info()) + "\n"
    assert answer.stdout.startswith("Available devices:\n")


def test_devices_are_listed_as_llama_server_lists_them() -> None:
    kinds = xllamacpp.ggml_backend_dev_type
    gpu = {
        "name": "CUDA0", "description": "NVIDIA H200", "memory_total": 150_000 << 20, "memory_free": 149_000 << 20,
        "type": kinds.GGML_BACKEND_DEVICE_TYPE_GPU,
    }  # fmt: skip
    processor = gpu | {"name": "CPU", "type": kinds.GGML_BACKEND_DEVICE_TYPE_CPU}
    text = device_text([gpu, processor])
    assert text == "Available devices:\n  CUDA0: NVIDIA H200 (150000 MiB, 149000 MiB free)"
    assert [(device.name, device.total_bytes) for device in parse_devices(text)] == [("CUDA0", 150_000 << 20)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--foo"], r"^error: invalid argument: --foo$"),
        (["--temp=1"], r"^error: invalid argument: --temp=1$"),
        (["word"], r"^error: invalid argument: word$"),
        (["--device", "CUDA0"], r"^error: the embedded engine cannot honour --device: .*CUDA_VISIBLE_DEVICES"),
        (["--rpc", "a:1"], r"^error: the embedded engine cannot honour --rpc: "),
        (["--draft-max", "3"], r"cannot honour --draft-max: .*--spec-draft-n-max"),
        ([], r"^error: the embedded engine is no router: name a model with --model$"),
        (["-c"], r'^error while handling argument "-c": expected value for argument$'),
        (["-c", "x"], r"^error while handling argument \"-c\": invalid value 'x'$"),
        (["-np", "0"], r'argument "-np": invalid value for n_parallel'),
        (["-ctk", "q9"], r'argument "-ctk": unknown value \'q9\', use one of f32, '),
        (["-fit", "maybe"], r'argument "-fit": unknown value \'maybe\', use on or off'),
        (["--spec-type", "draft"], r'argument "--spec-type": unknown speculative type: draft'),
        (["--spec-draft-p-min", "2"], r'argument "--spec-draft-p-min": invalid value 2.0, use 0.0 to 1.0'),
        (["-ts", "1,b"], r'argument "-ts": invalid value \'1,b\''),
        (["-ts", ",".join(["1"] * 200)], r'argument "-ts": got 200 proportions'),
        (["-ot", "x=NOWHERE"], r'argument "-ot": unknown buffer type'),
        (["--chat-template-kwargs", "[1]"], r"not a JSON object"),
        (["--grammar-file", "no/such/file"], r"failed to read file 'no/such/file'"),
        (["--samplers", "top_k;foo"], r"unknown sampler 'foo'"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_a_command_line_that_cannot_be_honoured(given: list[str], message: str) -> None:
    answer = ask(*given)
    assert answer.returncode == 1
    assert re.search(message, answer.stderr, re.MULTILINE), answer.stderr


def test_a_bad_value_shows_the_help_of_its_flag() -> None:
    usage = ask("--flash_attn", "maybe").stderr
    assert '"--flash-attn"' in usage
    assert "\nusage:\n-fa,   --flash-attn [on|off|auto]       flash attention" in usage


def test_expert_layers_count_from_zero_and_stop_before_n() -> None:
    patterns = [part.removesuffix("=CPU") for part in expert_layer_overrides(2).split(",")]
    names = [f"blk.{layer}.ffn_{part}_exps.weight" for layer in (0, 1, 2, 10, 11) for part in ("up", "gate_up")]
    moved = [name for name in names if any(re.search(pattern, name) for pattern in patterns)]
    assert moved == [name for name in names if name.startswith(("blk.0.", "blk.1."))]
    assert not any(re.search(pattern, "blk.0.ffn_up_shexp.weight") for pattern in patterns)


def test_serves_what_it_loaded(arguments: tuple[str, ...]) -> None:
    with loaded(*arguments) as engine:
        answer = engine.request("POST", "/completion", {"prompt": "hello abc", "n_predict": 7, "temperature": 0})
        assert answer.json["content"] == "defgabc"
        assert engine.request("GET", "/props").json["total_slots"] == 4
        assert engine.request("GET", "/metrics").status == 501


def test_key_of_the_environment_and_of_the_command_line_both_open(arguments: tuple[str, ...]) -> None:
    with loaded(*arguments, "--api-key", "line", LLAMA_API_KEY="first,second") as engine:
        statuses = [
            engine.request("GET", "/props", headers={"Authorization": f"Bearer {key}"}).status
            for key in ("first", "second", "line", "other")
        ]
        assert statuses == [200, 200, 200, 401]


def test_variables_of_llama_server_change_nothing(arguments: tuple[str, ...]) -> None:
    with loaded(*arguments, LLAMA_ARG_N_PARALLEL="2", LLAMA_ARG_DRAFT_MAX="3") as engine:
        assert engine.request("GET", "/props").json["total_slots"] == 4


def test_listens_on_a_unix_socket(arguments: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with loaded(*arguments, "--host", str(path)) as engine:
        assert engine.request("GET", "/health", connection=UnixConnection(path)).status == 200
        with pytest.raises(ConnectionRefusedError):
            engine.request("GET", "/health")


def test_a_draft_that_cannot_start_leaves_the_server_ready(arguments: tuple[str, ...], models: TinyModels) -> None:
    with loaded(*arguments, "-md", str(models.draft), "--spec-type", "draft-eagle3") as engine:
        assert not engine.request("GET", "/slots").json[0]["speculative"]
        assert "failed to initialize speculative decoding context" in engine.log


def test_speculation_is_seen_in_the_slots(arguments: tuple[str, ...], models: TinyModels) -> None:
    with loaded(*arguments, "-md", str(models.draft), "--spec-type", "draft-simple") as engine:
        assert engine.request("GET", "/slots").json[0]["speculative"]


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    with EmbeddedEngine(["-m", str(tmp_path / "missing.gguf")]) as engine:
        assert engine.wait_for_end() == 1
        assert re.search(r"exiting due to model loading error\n\Z", engine.log)
        assert "failed to open GGUF file" in engine.log


def test_a_failed_load_says_so_even_without_a_log(tmp_path: Path) -> None:
    with EmbeddedEngine(["-m", str(tmp_path / "missing.gguf"), "-lv", "0"]) as engine:
        assert engine.wait_for_end() == 1
        assert "exiting due to a failed start" in engine.log


def test_a_port_in_use(arguments: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with EmbeddedEngine(arguments, port=taken.getsockname()[1]) as engine:
            assert engine.wait_for_end() == 1
            assert "couldn't bind HTTP server socket" in engine.log
            assert re.search(r"exiting due to HTTP server error\n\Z", engine.log)


def test_while_it_loads_it_answers_503_and_a_signal_ends_it(tmp_path: Path) -> None:
    """A named pipe that nobody writes to is a model that never finishes loading."""
    pipe = tmp_path / "endless.gguf"
    os.mkfifo(pipe)
    for number in (signal.SIGTERM, signal.SIGINT):
        with EmbeddedEngine(["-m", str(pipe), "-fit", "off"]) as engine:
            assert engine.wait_for_line("loading model '")
            answer = engine.request("GET", "/health")
            assert (answer.status, answer.json["error"]["message"]) == (503, "Loading model")
            engine.signal(number)
            assert engine.wait_for_end() == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(arguments: tuple[str, ...], number: signal.Signals) -> None:
    with loaded(*arguments) as engine:
        moment = engine.signal(number)
        assert engine.wait_for_end() == 0
        assert time.monotonic() - moment < 2.0  # measured: below 0.02 s; the rest is for a busy host


def test_a_request_in_flight_holds_the_stop_until_a_second_signal(arguments: tuple[str, ...]) -> None:
    with (
        loaded(*arguments, "--context-shift", "-lv", "4") as engine,
        closing(engine.connection()) as connection,
    ):
        connection.request("POST", "/completion", json.dumps(ENDLESS))
        assert engine.wait_for_line("processing task")
        engine.signal()
        assert engine.wait_for_line("waiting for main loop exit")
        assert engine.process.poll() is None
        moment = engine.signal()
        assert engine.wait_for_end() == 1
        assert time.monotonic() - moment < 2.0
        # Two of its threads write here, and either's line can stand in the other's.
        assert "Received second interrupt, terminating immediately." in engine.log


def test_a_stop_ends_when_the_client_leaves(arguments: tuple[str, ...]) -> None:
    with loaded(*arguments, "--context-shift", "-lv", "4") as engine:
        connection = engine.connection()
        connection.request("POST", "/completion", json.dumps(ENDLESS))
        assert engine.wait_for_line("processing task")
        engine.signal()
        assert engine.wait_for_line("waiting for main loop exit")
        connection.close()
        assert engine.wait_for_end() == 0


def test_a_destructor_that_hangs_is_cut_off() -> None:
    program = (
        "import threading\n"
        "from app.llama_server.embedded.stopping import stop\n"
        "class Stuck:\n"
        "    def __del__(self): threading.Event().wait()\n"
        "stop([Stuck()], deadline_seconds=0.1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=20, check=False)
    assert done.returncode == 1
    assert b"Timeout" in done.stderr
