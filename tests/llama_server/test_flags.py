"""Profiles as argument lists: exact, so that a change of what is launched is seen here first."""

from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import case, engine, profile

from app.llama_server.flags import LaunchFiles, ListenAddress, command_line, launch_flags
from app.placement.resolve import resolve
from app.profiles.profile import LaunchProfile

FILES = LaunchFiles(Path("/m/t.gguf"), Path("/m/d.gguf"))


def flags(wanted: LaunchProfile, *devices: str, **options: Any) -> str:
    resolved = resolve(case(wanted, device_names=devices))
    return " ".join(launch_flags(wanted, resolved, FILES, **options))


def test_the_simplest_profile_says_everything_that_decides() -> None:
    assert flags(profile(context={"prompt_cache_bytes": 0})) == (
        "--model /m/t.gguf --alias p --gpu-layers all --fit off --ctx-size 8192 --parallel 1 --no-kv-unified "
        "--cache-type-k f16 --cache-type-v f16 --batch-size 2048 --ubatch-size 512 --flash-attn auto --cache-ram 0 "
        "--spec-type none --verbosity 4 --metrics --slots"
    )


def test_two_devices_with_a_drafter() -> None:
    wanted = profile(
        speculation={"method": "dspark", "draft": {"path": "d.gguf"}, "draft_tokens_max": 5},
        placement={"devices": ["CUDA0", "CUDA1"], "tensor_split": [18, 24.5]},
    )
    line = flags(wanted, "CUDA0", "CUDA1")
    assert "--device CUDA0,CUDA1 --gpu-layers all --split-mode layer --main-gpu 0 --tensor-split 18,24.5" in line
    assert (
        "--spec-type draft-dspark --spec-draft-model /m/d.gguf --spec-draft-device CUDA1 --spec-draft-ngl all "
        "--spec-draft-type-k f16 --spec-draft-type-v f16 --spec-draft-n-max 5 --spec-draft-n-min 0 --spec-draft-p-min 0"
    ) in line


def test_devices_that_rpc_brings_come_before_they_are_named() -> None:
    line = flags(profile(placement={"devices": ["RPC0"]}), "RPC0", rpc=("127.0.0.1:1", "127.0.0.1:2"))
    assert line.startswith("--rpc 127.0.0.1:1,127.0.0.1:2 ")
    assert "--device RPC0" in line


@pytest.mark.parametrize(("layers", "expected"), [("all", "--cpu-moe"), (7, "--n-cpu-moe 7"), (0, None)])
def test_experts_on_the_host(layers: object, expected: str | None) -> None:
    line = flags(profile(placement={"cpu_moe_layers": layers}))
    assert expected in line if expected else "cpu-moe" not in line


@pytest.mark.parametrize("method", ["ngram-simple", "ngram-map-k", "ngram-map-k4v"])
def test_ngram_limits_are_said(method: str) -> None:
    wanted = profile(speculation={"method": method, "ngram": {"draft_length_max": 9}})
    assert f"--spec-{method}-size-n 12 --spec-{method}-size-m 9 --spec-{method}-min-hits 1" in flags(wanted)


def test_ngram_mod_before_a_drafter_keeps_both_limits() -> None:
    wanted = profile(
        speculation={"method": "draft", "draft": {"path": "d.gguf"}, "also": ["ngram-mod"], "draft_tokens_max": 4,
                     "draft_probability_min": 0.6, "ngram": {"draft_length_max": 32}}
    )  # fmt: skip
    line = flags(wanted)
    assert "--spec-type ngram-mod,draft-simple" in line
    assert "--spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0.6" in line
    # The least length may not pass the most.
    assert "--spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 32 --spec-ngram-mod-n-max 32" in line


def test_mtp_from_the_target_itself_has_no_draft_model() -> None:
    line = flags(profile(speculation={"method": "mtp"}))
    assert "--spec-type draft-mtp --spec-draft-n-max 3" in line


def test_the_address_is_a_socket_or_a_loopback_port() -> None:
    facts = engine()
    assert command_line(facts, ("--x",), ListenAddress(socket_path="/r/a.sock")) == (
        "llama-server", "--x", "--host", "/r/a.sock",
    )  # fmt: skip
    assert command_line(facts, (), ListenAddress(port=4242))[-4:] == ("--host", "127.0.0.1", "--port", "4242")
