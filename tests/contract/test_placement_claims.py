"""What the rules claim of llama.cpp, tried on the real engine: it dies where a finding is an error, and else serves."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures.cases import case, profile
from fixtures.embedded_engine import free_port
from fixtures.tiny_models import TinyModels
from service import eventually, short_folder

from app.findings import blocking
from app.inventory.models import read_model
from app.llama_server.flags import LaunchFiles, ListenAddress, address_flags, launch_flags
from app.llama_server.rules import judge_engine
from app.placement.case import LaunchCase
from app.placement.resolve import resolve
from app.placement.rules import judge

pytestmark = pytest.mark.engine

TWO = ("RPC0", "RPC1")
CONTEXT = {"size": 256, "threads": 1, "prompt_cache_bytes": 0}
# More than the context of these launches: a shift takes place, or the answer ends there.
TOKENS = 400


def drafting(method: str, device: str | None) -> dict[str, Any]:
    return {"speculation": {"method": method, "draft": {"path": "d.gguf", "device": device}}}


def split(*shares: float, **more: Any) -> dict[str, Any]:
    return {"placement": {"tensor_split": list(shares), **more}}


def shifting(k_type: str) -> dict[str, Any]:
    return {"extra_args": ["--context-shift"], "context": {"k_type": k_type}}


def judged_case(tiny: TinyModels, draft: str | None, names: Sequence[str], changes: Mapping[str, Any]) -> LaunchCase:
    wanted = profile(**{**changes, "context": {**CONTEXT, **changes.get("context", {})}})
    drafter = read_model(getattr(tiny, draft)) if draft else None
    return case(wanted, target=read_model(tiny.dense_target), draft=drafter, device_names=names)


def survives(engine_path: Path, judged: LaunchCase, rpc: tuple[str, ...]) -> bool:
    """Whether the launch becomes ready and answers a long request."""
    assert judged.target is not None
    files = LaunchFiles(judged.target.path, judged.draft.path if judged.draft else None)
    flags = launch_flags(judged.profile, resolve(judged), files, rpc=rpc)
    port = free_port()
    argv = [engine_path, *flags, *judged.profile.extra_args, *address_flags(ListenAddress(port=port))]
    with short_folder() as folder:
        environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "XDG_CONFIG_HOME": str(folder)}
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                return eventually(lambda: _came_to(process, client)) == "ready" and _answers(client)
        finally:
            process.kill()
            process.wait()


def _came_to(process: "subprocess.Popen[bytes]", client: httpx.Client) -> str | None:
    """None while it loads."""
    if process.poll() is not None:
        return "its end"
    try:
        return "ready" if client.get("/health").status_code == httpx.codes.OK else None
    except httpx.TransportError:
        return None


def _answers(client: httpx.Client) -> bool:
    try:
        answer = client.post("/completion", json={"prompt": "hello abc", "n_predict": TOKENS, "temperature": 0})
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


TENSOR = {"placement": {"split_mode": "tensor"}}
NO_ATTENTION = {"flash_attention": "off"}
APART, TENSOR_DRAFT = "draft-not-with-output", "tensor-mode-draft"

# What is launched, with which drafter, and the rule that speaks against it.
ON_DEVICES: Mapping[str, tuple[str | None, dict[str, Any], str | None]] = {
    "with-output": ("dspark", drafting("dspark", "RPC1") | split(1, 1), None),
    "apart": ("dspark", drafting("dspark", "RPC0") | split(1, 1), APART),
    "on-host": ("eagle3", drafting("eagle3", "none") | split(1, 1), APART),
    "own-head-apart": ("dspark_own_head", drafting("dspark", "RPC0") | split(1, 1), None),
    "output-on-host": ("dflash", drafting("dflash", "RPC0") | {"placement": {"gpu_layers": 0}}, None),
    "small-share": ("dspark", drafting("dspark", "RPC1") | split(100, 1), APART),
    "small-share-left-open": ("dspark", drafting("dspark", None) | split(100, 1), None),
    "one-layer": ("dspark", drafting("dspark", None) | split(1, 1, gpu_layers=1), None),
    "negative": (None, split(-1, 1), "split-shape"),
    "main-gpu": (None, {"placement": {"split_mode": "none", "main_gpu": 2}}, "main-gpu-unknown"),
    "tensor": (None, TENSOR, None),
    "tensor-attention": (None, TENSOR | {"context": NO_ATTENTION}, "tensor-mode-attention"),
    "tensor-draft": ("draft", drafting("draft", "RPC0") | TENSOR, None),
    "tensor-draft-on-host": ("draft", drafting("draft", "none") | TENSOR, TENSOR_DRAFT),
    "tensor-block-drafter": ("dflash", drafting("dflash", "RPC0") | TENSOR, TENSOR_DRAFT),
}
ON_HOST: Mapping[str, tuple[str | None, dict[str, Any], str | None]] = {
    "quantised-k": (None, {"context": {"k_type": "q8_0", **NO_ATTENTION}}, None),
    "quantised-v": (None, {"context": {"v_type": "q8_0", **NO_ATTENTION}}, "quantised-v-needs-flash-attention"),
    "shift": (None, shifting("f16"), None),
    "shift-quantised": (None, shifting("q8_0"), "context-shift-k-type"),
    "shift-bf16": (None, shifting("bf16"), "context-shift-k-type"),
    "one-token": (None, {"context": {"size": 1}}, "context-too-small"),
    "two-tokens": (None, {"context": {"size": 2}}, None),
    "short-for-a-draft": ("draft", drafting("draft", "none") | {"context": {"size": 3}}, "context-too-small"),
    "long-enough-for-a-draft": ("draft", drafting("draft", "none") | {"context": {"size": 4}}, None),
    "short-for-a-block": ("dflash", drafting("dflash", "none") | {"context": {"size": 3}}, "context-too-small"),
    "long-enough-for-a-block": ("dflash", drafting("dflash", "none") | {"context": {"size": 4}}, None),
    "mtp-from-plain": ("draft", drafting("mtp", "none"), "mtp-absent"),
}


@pytest.mark.parametrize("name", ON_DEVICES)
def test_on_two_devices(name: str, tiny: TinyModels, engine_path: Path, rpc_devices: tuple[str, str]) -> None:
    draft, changes, rule = ON_DEVICES[name]
    _hold_against(engine_path, judged_case(tiny, draft, TWO, changes), rpc_devices, rule)


@pytest.mark.parametrize("name", ON_HOST)
def test_on_the_host(name: str, tiny: TinyModels, engine_path: Path) -> None:
    draft, changes, rule = ON_HOST[name]
    _hold_against(engine_path, judged_case(tiny, draft, (), changes), (), rule)


def _hold_against(engine_path: Path, judged: LaunchCase, rpc: tuple[str, ...], rule: str | None) -> None:
    refusing = blocking([*judge(judged), *judge_engine(judged, ())], force=True)
    assert [found.rule for found in refusing] == ([rule] if rule else [])
    assert survives(engine_path, judged, rpc) is (rule is None)
