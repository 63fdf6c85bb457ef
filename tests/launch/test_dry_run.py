"""Dry runs of the executable fake, and of the real engine."""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import HELP, devices, engine
from fixtures.tiny_models import TinyModels
from service import eventually

from app.inventory.engine import EngineFacts, EngineKind
from app.launch.dry_run import DryRuns
from app.launch.witness import Outcome, Refusal, Unwitnessed, Witness, outcome_of
from app.llama_server.breakdown import Breakdown, Figures
from app.llama_server.dry_run_output import DryRunOutput
from app.llama_server.engine import find_engine
from app.llama_server.log_lines import FailureReason
from app.llama_server.probe import EngineProbe

FAKE = Path(__file__).parent.parent / "fakes" / "llama_server.py"
MIB = 1 << 20


class Asked:
    """A model file of its own, what the fake says of it, and the dry runs that there were."""

    def __init__(self, model: Path) -> None:
        self.model = model

    def plays(self, **scenario: Any) -> None:
        Path(f"{self.model}.scenario.json").write_text(json.dumps(scenario))

    def flags(self, *more: str) -> tuple[str, ...]:
        return ("--model", str(self.model), "--spec-type", "none", *more, "--fit", "off")

    @property
    def runs(self) -> list[dict[str, Any]]:
        facts = Path(f"{self.model}.events.jsonl")
        lines = facts.read_text().splitlines() if facts.exists() else []
        return [fact for fact in map(json.loads, lines) if fact["event"] == "measured"]

    async def begun(self) -> dict[str, Any]:
        """The first run, once there is one."""
        return (await asyncio.to_thread(eventually, lambda: self.runs or None))[0]


@pytest.fixture
def asked(tmp_path: Path, tiny: TinyModels) -> Asked:
    model = tmp_path / "target.gguf"
    shutil.copy(tiny.dense_target, model)
    return Asked(model)


@pytest.fixture
def fake() -> EngineFacts:
    facts = engine()
    return EngineFacts(facts.kind, (str(FAKE),), facts.build, facts.flags)


@pytest.fixture
async def dry_runs() -> AsyncIterator[DryRuns]:
    runs = DryRuns(limit_seconds=20)
    yield runs
    await runs.close()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_the_very_flags_with_the_fit_on(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    flags = asked.flags("--ctx-size", "512")
    assert await dry_runs.witness(fake, flags, (), {}) == Witness(Breakdown({}))
    (run,) = asked.runs
    given = run["argv"][1:]
    assert given[: len(flags) - 2] == list(flags[:-2])
    assert given[given.index("--fit") + 1] == "on"
    assert given.count("--fit") == 1
    assert given[given.index("--host") + 1].endswith(".sock")
    assert "--port" not in given
    assert is_gone(run["pid"])


async def test_what_is_known_is_not_asked_again(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    two = devices("CUDA0", "CUDA1")
    split = asked.flags("--tensor-split", "1,1")
    first = await dry_runs.witness(fake, split, two, {})
    busier = tuple(replace(device, free_bytes=1) for device in two)
    assert await dry_runs.witness(fake, split, busier, {}) is first
    assert len(asked.runs) == 1


@pytest.mark.parametrize("changed", ["file", "free memory", "total memory", "build", "environment"])
async def test_what_the_answer_depends_on_is_asked_again(
    dry_runs: DryRuns, fake: EngineFacts, asked: Asked, changed: str
) -> None:
    two = devices("CUDA0", "CUDA1")
    await dry_runs.witness(fake, asked.flags(), two, {})
    facts, environment = fake, {}
    match changed:
        case "file":
            os.utime(asked.model, (1, 1))
        case "free memory":
            # Without a split the layers follow it.
            two = tuple(replace(device, free_bytes=1) for device in two)
        case "total memory":
            two = tuple(replace(device, total_bytes=1) for device in two)
        case "build":
            facts = replace(fake, build="another")
        case "environment":
            environment = {"CUDA_VISIBLE_DEVICES": "0"}
    await dry_runs.witness(facts, asked.flags(), two, environment)
    assert len(asked.runs) == 2


async def test_the_oldest_answer_is_forgotten(fake: EngineFacts, asked: Asked) -> None:
    dry_runs = DryRuns(remembered=1, limit_seconds=20)
    for size in ("256", "512", "512", "256"):
        await dry_runs.witness(fake, asked.flags("--ctx-size", size), (), {})
    assert len(asked.runs) == 3


async def test_askers_at_the_same_time_share_one_run(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    answers = await asyncio.gather(*(dry_runs.witness(fake, asked.flags(), (), {}) for _ in range(3)))
    assert len(asked.runs) == 1
    assert answers[0] is answers[1] is answers[2]


async def test_an_asker_that_leaves_does_not_end_the_run(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    leaver = asyncio.create_task(dry_runs.witness(fake, asked.flags(), (), {}))
    stayer = asyncio.create_task(dry_runs.witness(fake, asked.flags(), (), {}))
    await asked.begun()
    leaver.cancel()
    assert isinstance(await stayer, Witness)
    assert len(asked.runs) == 1


async def test_a_child_that_says_nothing_is_ended_at_the_limit(fake: EngineFacts, asked: Asked) -> None:
    asked.plays(dry_run={"stdout": []})
    outcome = await DryRuns(limit_seconds=0.8).witness(fake, asked.flags(), (), {})
    assert isinstance(outcome, Unwitnessed)
    assert outcome.reason == "time-limit"
    assert all(is_gone(run["pid"]) for run in asked.runs)


async def test_a_silent_rpc_server_is_named(fake: EngineFacts, asked: Asked) -> None:
    asked.plays(dry_run={"stdout": []})
    dry_runs = DryRuns(limit_seconds=20, rpc_silence_seconds=0.3)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        outcome = await dry_runs.witness(fake, ("--rpc", address, *asked.flags()), (), {})
    assert isinstance(outcome, Unwitnessed)
    assert outcome.reason == "rpc-busy"
    # Now nobody listens there.
    gone = await dry_runs.witness(fake, ("--rpc", address, *asked.flags()), (), {})
    assert isinstance(gone, Unwitnessed)
    assert gone.reason == "not-started"


async def test_closing_ends_the_child(fake: EngineFacts, asked: Asked) -> None:
    asked.plays(dry_run={"stdout": []})
    dry_runs = DryRuns(limit_seconds=20)
    asker = asyncio.create_task(dry_runs.witness(fake, asked.flags(), (), {}))
    run = await asked.begun()
    await dry_runs.close()
    assert is_gone(run["pid"])
    assert reason(await asker) == "service-ends"
    assert reason(await dry_runs.witness(fake, asked.flags(), (), {})) == "service-ends"
    assert len(asked.runs) == 1


async def test_the_end_may_come_while_an_asker_still_reads_its_files(
    dry_runs: DryRuns, fake: EngineFacts, asked: Asked
) -> None:
    asker = asyncio.create_task(dry_runs.witness(fake, asked.flags(), (), {}))
    await asyncio.sleep(0)
    dry_runs.end()
    assert reason(await asker) == "service-ends"
    assert asked.runs == []


async def test_the_end_may_come_before_a_run_has_begun(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    asker = asyncio.create_task(dry_runs.witness(fake, asked.flags(), (), {}))
    while not dry_runs._running:  # noqa: ASYNC110 - it must not go further than that
        await asyncio.sleep(0)
    dry_runs.end()
    assert reason(await asker) == "service-ends"
    assert asked.runs == []


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Unwitnessed)
    return outcome.reason


async def test_a_refusal_is_evidence_and_not_remembered(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    asked.plays(dry_run={"stdout": ["0.00.010.000 E llama_model_load: error loading model: bad"], "exit_code": 1})
    outcome = await dry_runs.witness(fake, asked.flags(), (), {})
    assert isinstance(outcome, Refusal)
    assert outcome.failure.reason == FailureReason.BAD_MODEL
    assert outcome.failure.last_lines == ("0.00.010.000 E llama_model_load: error loading model: bad",)
    asked.plays()
    assert isinstance(await dry_runs.witness(fake, asked.flags(), (), {}), Witness)


async def test_a_line_without_end_is_passed_over(dry_runs: DryRuns, fake: EngineFacts, asked: Asked) -> None:
    asked.plays(dry_run={"stdout": ["x" * (3 << 20), "0.00.010.000 E GGML_ASSERT(false)"], "exit_code": 1})
    outcome = await dry_runs.witness(fake, asked.flags(), (), {})
    assert isinstance(outcome, Refusal)
    assert "GGML_ASSERT(false)" in outcome.failure.message


async def test_a_folder_too_long_for_a_socket(fake: EngineFacts, asked: Asked, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    assert isinstance(await DryRuns(folder=folder, limit_seconds=20).witness(fake, asked.flags(), (), {}), Witness)
    given = asked.runs[0]["argv"]
    assert given[given.index("--host") + 1 :][:3] == ["127.0.0.1", "--port", "0"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (EngineFacts(EngineKind.EMBEDDED, ("python",), "b"), "engine-embedded"),
        (engine(help_text=HELP.replace("--log-jsonl", "--log-other")), "engine-too-old"),
        (replace(engine(), command=("/absent/llama-server",)), "not-started"),
    ],
)
async def test_engines_that_cannot(dry_runs: DryRuns, facts: EngineFacts, reason: str) -> None:
    outcome = await dry_runs.witness(facts, ("--model", "m.gguf"), (), {})
    assert isinstance(outcome, Unwitnessed)
    assert outcome.reason == reason


def heard(*lines: str) -> DryRunOutput:
    said = DryRunOutput()
    for line in lines:
        said.add(line)
    return said


HOST_ONLY = json.dumps(
    {"type": "fit_memory_breakdown", "data": {"unit": "MiB", "rows": [
        {"kind": "host", "name": "Host", "model": 1, "context": 2, "compute": 3}]}}
)  # fmt: skip


def test_a_crash_is_a_refusal_and_a_kill_is_not() -> None:
    said = heard(HOST_ONLY, "0.00.010.000 E GGML_ASSERT(false)")
    crashed = outcome_of(said, -6, ())
    assert isinstance(crashed, Refusal)
    assert crashed.failure.reason == "killed-by-signal-6"
    killed = outcome_of(said, -9, ())
    assert isinstance(killed, Unwitnessed)
    assert killed.reason == "killed"


def test_a_layout_that_the_engine_changes_is_not_witnessed() -> None:
    asked = [HOST_ONLY, "I fit: projected to use 6 MiB of host memory"]
    assert isinstance(outcome_of(heard(*asked), None, ("--fit", "on")), Witness)
    changed = outcome_of(heard(*asked, HOST_ONLY), None, ("--fit", "on"))
    assert isinstance(changed, Unwitnessed)
    assert changed.reason == "fit-decides"


# The real engine.


@pytest.fixture
async def real(engine_path: Path, rpc_devices: tuple[str, str]) -> EngineFacts:
    return await EngineProbe(lambda: find_engine(str(engine_path)), rpc_devices).facts()


@pytest.fixture
def on_two(rpc_devices: tuple[str, str]) -> tuple[str, ...]:
    return ("--rpc", ",".join(rpc_devices), "--device", "RPC0,RPC1", "--gpu-layers", "99", "--tensor-split", "1,1")


async def measured(dry_runs: DryRuns, facts: EngineFacts, *flags: str) -> Outcome:
    size = ("--ctx-size", "32768", "--parallel", "1", "--no-kv-unified", "--fit", "off")
    return await dry_runs.witness(facts, (*flags, *size), facts.devices, {})


@pytest.mark.engine
async def test_a_target_on_two_devices(
    dry_runs: DryRuns, real: EngineFacts, on_two: tuple[str, ...], tiny: TinyModels
) -> None:
    outcome = await measured(dry_runs, real, *on_two, "--model", str(tiny.dense_target), "--spec-type", "none")
    assert isinstance(outcome, Witness)
    # Layers 0 to 4 and 5 to 7: 32768 cells of 32 + 32 numbers of two bytes.
    contexts = {name: figures.context_bytes for name, figures in outcome.target.devices.items()}
    assert contexts == {"RPC0": 20 * MIB, "RPC1": 12 * MIB}
    assert outcome.target.host.context_bytes == 0
    assert (outcome.draft, outcome.mtp, outcome.blind) == (None, None, frozenset())


@pytest.mark.engine
async def test_a_draft_where_it_was_put(
    dry_runs: DryRuns, real: EngineFacts, on_two: tuple[str, ...], tiny: TinyModels
) -> None:
    target = (*on_two, "--model", str(tiny.dense_target), "--spec-type", "draft-simple")
    outcome = await measured(
        dry_runs, real, *target, "--spec-draft-model", str(tiny.draft), "--spec-draft-device", "RPC0"
    )
    assert isinstance(outcome, Witness)
    assert outcome.draft is not None
    assert {name: figures.context_bytes for name, figures in outcome.draft.devices.items()} == {"RPC0": 4 * MIB}
    assert outcome.mtp is None


@pytest.mark.engine
async def test_an_mtp_context(dry_runs: DryRuns, real: EngineFacts, on_two: tuple[str, ...], tiny: TinyModels) -> None:
    outcome = await measured(dry_runs, real, *on_two, "--model", str(tiny.mtp_target), "--spec-type", "draft-mtp")
    assert isinstance(outcome, Witness)
    assert outcome.draft is None
    assert outcome.mtp is not None
    # The block's cache lies on the device of the last layers.
    assert {name: figures.context_bytes // MIB for name, figures in outcome.mtp.devices.items()} == {
        "RPC0": 0,
        "RPC1": 4,
    }


@pytest.mark.engine
@pytest.mark.parametrize("own_head", [False, True])
async def test_block_drafters_are_half_seen(
    dry_runs: DryRuns, real: EngineFacts, on_two: tuple[str, ...], tiny: TinyModels, own_head: bool
) -> None:
    draft = tiny.dspark_own_head if own_head else tiny.dspark
    target = (*on_two, "--model", str(tiny.dense_target), "--spec-type", "draft-dspark")
    outcome = await measured(dry_runs, real, *target, "--spec-draft-model", str(draft), "--spec-draft-device", "RPC1")
    assert isinstance(outcome, Witness)
    assert (outcome.draft is not None) is own_head
    nothing = {"compute", "draft_weights", "draft_kv_cache", "draft_compute"}
    assert outcome.blind == ({"compute", "draft_compute"} if own_head else nothing)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("flags", "reason", "said"),
    [
        (("--spec-type", "none", "--nope"), FailureReason.FLAG_UNKNOWN, "--nope"),
        (("--spec-type", "none", "--cache-type-v", "q8_0", "--flash-attn", "off"), FailureReason.EXITED, "flash_attn"),
        (("--spec-type", "draft-mtp"), FailureReason.DRAFT_FAILED, "failed to create"),
    ],
)
async def test_what_the_engine_refuses(
    dry_runs: DryRuns, real: EngineFacts, tiny: TinyModels, flags: tuple[str, ...], reason: str, said: str
) -> None:
    outcome = await measured(dry_runs, real, "--model", str(tiny.dense_target), *flags)
    assert isinstance(outcome, Refusal)
    assert outcome.failure.reason == reason
    assert said in outcome.failure.message


@pytest.mark.engine
async def test_the_real_engine_reads_no_flag_of_the_environment(
    dry_runs: DryRuns, real: EngineFacts, tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "3")
    outcome = await measured(dry_runs, real, "--model", str(tiny.dense_target), "--spec-type", "none")
    assert isinstance(outcome, Witness)
    assert outcome.target.host == Figures(0, 32 * MIB, outcome.target.host.compute_bytes)
