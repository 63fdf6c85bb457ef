"""What the plan and the rules claim of adapters, tried on the real engine: where they lie, and what it dies of."""

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.adapters import write_lora
from fixtures.cases import case, profile
from fixtures.embedded_engine import free_port
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS

from app.inventory.models import ModelKind, read_model
from app.llama_server.adapter_rules import RULES
from app.placement.budgets import HOST_NAME
from app.placement.case import Adapter, LaunchCase
from app.placement.plan import plan
from app.placement.resolve import resolve

pytestmark = pytest.mark.engine

MIB = 1 << 20
RANK, TOKENS = 4096, 512
_LORA = re.compile(r"(\S+) LoRA buffer size = +([0-9.]+) MiB")
_COMPUTE = re.compile(r"(\S+) compute buffer size = +([0-9.]+) MiB")
QUERIES = tuple(f"blk.{layer}.attn_q.weight" for layer in range(8))


def judged(target: Path, adapter: Path | None, placement: Mapping[str, object]) -> LaunchCase:
    bare = case(
        profile(placement=dict(placement), context={"size": TOKENS}),
        target=read_model(target),
        device_names=("RPC0", "RPC1"),
    )
    if adapter is None:
        return bare
    return replace(bare, adapters=(Adapter("--lora", ModelKind.LORA, read_model(adapter)),))


def said(engine_path: Path, rpc: Sequence[str], words: Sequence[str]) -> list[str]:
    """What the engine says until it listens, or until its end."""
    argv = [str(engine_path), "--rpc", ",".join(rpc), *words, "-fit", "off", "-np", "1", "-c", str(TOKENS), "-lv", "4"]
    argv += ["--host", "127.0.0.1", "--port", str(free_port()), "-t", "1"]
    environment = {"GGML_NO_BACKTRACE": "1"}
    lines = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        deadline = threading.Timer(DEADLINE_SECONDS, process.kill)
        deadline.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if "listening on" in line:
                    break
        finally:
            deadline.cancel()
            process.kill()
    return lines


def by_place(lines: Sequence[str], pattern: re.Pattern[str], rpc: Sequence[str], *, last: bool) -> dict[str, float]:
    """MiB by place, of the first figures that the engine gives or of the last."""
    found: dict[str, float] = {}
    for match in filter(None, map(pattern.search, lines)):
        address = re.search(r"\[(.+)\]", match[1])
        place = f"RPC{rpc.index(address[1])}" if address else HOST_NAME
        if last or place not in found:
            found[place] = float(match[2])
    return found


@pytest.mark.parametrize(
    ("names", "words", "placement"),
    [
        ((*QUERIES, "output.weight", "token_embd.weight"), (), {}),
        (QUERIES, ("-ngl", "3"), {"gpu_layers": 3}),
        (QUERIES, ("-ot", "blk.7.attn_q=CPU"), {"override_tensor": ["blk.7.attn_q=CPU"]}),
        (("blk.0.ffn_up.weight", "blk.7.ffn_down.weight"), (), {}),
    ],
)
def test_adapters_lie_and_grow_no_more_than_planned(
    names: tuple[str, ...],
    words: tuple[str, ...],
    placement: dict[str, object],
    tiny: TinyModels,
    tmp_path: Path,
    engine_path: Path,
    rpc_devices: tuple[str, str],
) -> None:
    adapter = write_lora(tmp_path / "a.gguf", tiny.dense_target, names, rank=RANK)
    argv = ["-m", str(tiny.dense_target), "-ts", "1,1", *words, "--lora", str(adapter)]
    lines = said(engine_path, rpc_devices, argv)
    assert any("listening on" in line for line in lines)
    measured = by_place(lines, _LORA, rpc_devices, last=True)
    # The engine reserves its compute buffers twice: without the adapters, and with them.
    after = by_place(lines, _COMPUTE, rpc_devices, last=True)
    for place, mib in by_place(lines, _COMPUTE, rpc_devices, last=False).items():
        measured[place] = measured.get(place, 0.0) + after[place] - mib
    split = {"tensor_split": [1, 1], **placement}
    plans = [plan(each, resolve(each)) for each in (
        judged(tiny.dense_target, None, split), judged(tiny.dense_target, adapter, split)
    )]  # fmt: skip
    for place, mib in measured.items():
        before, with_it = (
            (each.host.terms if place == HOST_NAME else next(d.terms for d in each.devices if d.name == place))
            for each in plans
        )
        planned = (with_it["overhead"] - before["overhead"]) / MIB
        assert mib - 0.1 <= planned <= 3 * mib + 10


@pytest.mark.parametrize(
    ("names", "words", "rule"),
    [
        (QUERIES, ("-sm", "tensor", "-fa", "on"), "adapter-tensor-mode"),
        (("blk.99.attn_q.weight",), (), "adapter-mismatch"),
    ],
)
def test_what_a_rule_refuses_the_engine_dies_of(
    names: tuple[str, ...],
    words: tuple[str, ...],
    rule: str,
    tiny: TinyModels,
    tmp_path: Path,
    engine_path: Path,
    rpc_devices: tuple[str, str],
) -> None:
    adapter = write_lora(tmp_path / "a.gguf", tiny.dense_target, names)
    lines = said(engine_path, rpc_devices, ["-m", str(tiny.dense_target), *words, "--lora", str(adapter)])
    assert not any("listening on" in line for line in lines)
    asked = judged(tiny.dense_target, adapter, {"split_mode": "tensor" if words else "layer"})
    assert [found.rule for each in RULES if (found := each(asked))] == [rule]
