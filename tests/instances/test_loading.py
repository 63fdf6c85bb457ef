"""Loads as the engines print them, as a process shows them, and as they go wrong."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import profile
from fixtures.checks import FAKE_ENGINE, launch_check
from fixtures.embedded_engine import COMMAND, ROOT, environment
from fixtures.tiny_models import TinyModels

from app.events import Event
from app.instances.evidence import ProcessSample
from app.instances.facts import InstanceLoadProgressed
from app.instances.loading import ExpectedBytes, LoadWatch, watch_load
from app.instances.looks import ProcessLook
from app.instances.process import ServerProcess
from app.llama_server.load_stages import LoadStage, load_stage_of

MIB = 1 << 20
GIB = 1 << 30
DEADLINE_SECONDS = 30

# Of build 11434 at the default verbosity, a target with a draft; the embedded engine differs in two prefixes only.
LINES = """\
0.00.000.935 I srv  llama_server: initializing ...
0.00.002.019 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
0.00.003.909 I srv    load_model: loading model '/models/gemma.gguf'
0.00.287.320 W load: control-looking token:    212 '</s>' was not control-type; its type will be overridden
0.00.412.525 I cmn          init: llama threadpool init, n_threads = 2
0.01.203.455 I common_speculative_init_result: loading draft model '/models/draft.gguf'
0.01.563.153 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 4096, kv_unified = 'false'
0.01.583.685 I srv  llama_server: model loaded
0.01.583.722 I srv  llama_server: listening on http://127.0.0.1:18777""".splitlines()
READING, WARM, DRAFT, SLOTS, LOADED = LINES[2], LINES[4], LINES[5], LINES[6], LINES[7]
EXPECTED = ExpectedBytes(target=6 * GIB, draft=2 * GIB)


def watch(expected: ExpectedBytes = EXPECTED) -> LoadWatch:
    return LoadWatch(expected, 0.0)


def seen(at: float, resident: int | None = None, read: int | None = None, busy: float | None = None) -> ProcessSample:
    return ProcessSample(at, busy, resident, read)


def test_every_stage_has_a_line() -> None:
    assert [load_stage_of(line) for line in LINES] == [
        None, None, LoadStage.READING_MODEL, None, LoadStage.WARMING_UP, LoadStage.LOADING_DRAFT, LoadStage.PREPARING,
        LoadStage.LOADED, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("0.01.001.977 I srv          init: model loaded", LoadStage.LOADED),
        (
            "0.00.398.839 I cmn  common_init_: warming up the model with an empty run - please wait ... "
            "(--no-warmup to disable)",
            LoadStage.WARMING_UP,
        ),
        ("0.00.003.244 I srv          init: loading model", None),
        ("0.00.320.418 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)", None),
        # A chat template may say anything.
        ("You have a model loaded. loading model 'x'", None),
    ],
)
def test_other_lines(line: str, stage: LoadStage | None) -> None:
    assert load_stage_of(line) is stage


def test_the_share_follows_what_is_read_and_never_falls() -> None:
    load = watch()
    load.sample(seen(0.1, resident=400 * MIB, read=10 * MIB))
    assert (load.stage, load.fraction) == (LoadStage.STARTING, None)
    load.line(READING, 0.2)
    assert (load.stage, load.fraction) == (LoadStage.READING_MODEL, 0.0)
    load.sample(seen(1, resident=400 * MIB + 4 * GIB, read=10 * MIB))
    assert load.fraction == 0.5
    # The copy on the host is given back when the device has it.
    load.sample(seen(2, resident=500 * MIB, read=10 * MIB))
    assert load.fraction == 0.5
    # A cache on the host is no part of the model: the draft's share is not reached before its time.
    load.sample(seen(3, resident=20 * GIB, read=10 * MIB))
    assert load.fraction == 0.75
    load.line(WARM, 4)
    assert (load.stage, load.fraction) == (LoadStage.WARMING_UP, 0.75)
    load.line(DRAFT, 5)
    load.sample(seen(6, resident=20 * GIB, read=10 * MIB + GIB))
    assert (load.stage, load.fraction) == (LoadStage.LOADING_DRAFT, 0.875)
    load.line(SLOTS, 7)
    assert (load.stage, load.fraction) == (LoadStage.PREPARING, 1.0)
    load.line(LOADED, 8)
    # What comes again, as when memory is measured at a high verbosity, does not lead back.
    load.line(READING, 9)
    assert (load.stage, load.fraction) == (LoadStage.LOADED, 1.0)


def test_a_projector_is_read_last() -> None:
    load = watch(ExpectedBytes(target=3 * GIB, projector=GIB))
    for at, line in enumerate((READING, WARM)):
        load.line(line, at)
    assert load.fraction == 0.75
    load.sample(seen(2, resident=GIB))
    load.sample(seen(3, resident=GIB + GIB // 2))
    assert load.fraction == 0.875


def test_no_share_without_a_plan() -> None:
    load = watch(ExpectedBytes())
    load.line(READING, 1)
    load.sample(seen(2, GIB, GIB))
    assert load.fraction is None
    load.line(LOADED, 3)
    assert load.fraction == 1.0


def test_lines_reading_and_growth_are_progress() -> None:
    load = watch()
    load.sample(seen(1, 100 * MIB, 0))
    assert load.last_progress_at == 0.0
    load.line("anything", 2)
    assert load.last_progress_at == 2
    load.sample(seen(3, 100 * MIB, 2 * MIB))
    assert load.last_progress_at == 3
    load.sample(seen(4, 102 * MIB, 2 * MIB))
    assert load.last_progress_at == 4
    assert not load.stalled(303.9, 300)
    assert load.stalled(304, 300)


def test_noise_and_computing_are_none() -> None:
    load = watch()
    load.sample(seen(0, 100 * MIB, 0, 8.0))
    for at in range(1, 400):
        load.sample(seen(at, 100 * MIB + at % 2 * MIB, at * 1000, 8.0))
    assert load.last_progress_at == 0.0
    assert load.stalled(300, 300)


def test_slow_growth_adds_up() -> None:
    load = watch()
    for at in range(100):
        load.sample(seen(at, 100 * MIB + at * MIB // 4, None))
    assert load.last_progress_at >= 95


def test_memory_that_comes_and_goes_is_none_until_a_line_is_printed() -> None:
    load = watch()
    for at in range(10):
        load.sample(seen(at, 100 * MIB + at % 2 * 50 * MIB))
    assert load.last_progress_at == 1
    load.sample(seen(10, 100 * MIB))
    load.line("the target is done", 11)
    load.sample(seen(12, 120 * MIB))
    assert load.last_progress_at == 12


def test_what_is_not_told_is_no_progress() -> None:
    load = watch()
    for at in range(5):
        load.sample(seen(at))
    assert load.last_progress_at == 0.0


async def test_a_launch_says_what_is_to_be_read(tiny: TinyModels) -> None:
    check = launch_check(tiny.dense_target.parent)
    with_draft = profile(speculation={"method": "draft", "draft": {"path": "draft.gguf"}}, context={"size": 1024})
    launch = (await check.check(with_draft, 1)).launch
    assert launch is not None
    expected = ExpectedBytes.of(launch)
    # The files hold the vocabulary too.
    assert 0.5 * tiny.dense_target.stat().st_size < expected.target <= 1.5 * tiny.dense_target.stat().st_size
    assert 0 < expected.draft <= 1.5 * tiny.draft.stat().st_size
    assert expected.total == expected.target + expected.draft
    heads = profile(target={"path": tiny.mtp_target.name}, speculation={"method": "mtp"}, context={"size": 1024})
    launch = (await check.check(heads, 1)).launch
    assert launch is not None
    assert ExpectedBytes.of(launch).draft == 0


class Told(list[InstanceLoadProgressed]):
    """Collects what is published."""

    def publish(self, event: Event) -> None:
        assert isinstance(event, InstanceLoadProgressed)
        self.append(event)


@asynccontextmanager
async def loading(
    folder: Path, scenario: dict[str, Any], expected: ExpectedBytes = EXPECTED
) -> AsyncIterator[tuple[ServerProcess, LoadWatch]]:
    """The fake engine at its load, with its lines given to a watch."""
    model = folder / "m.gguf"
    model.touch()
    Path(f"{model}.scenario.json").write_text(json.dumps(scenario))
    loop = asyncio.get_running_loop()
    load = LoadWatch(expected, loop.time())
    argv = [str(FAKE_ENGINE), "-m", str(model), "--port", "0"]
    child = await ServerProcess.start(argv, {"PATH": os.environ["PATH"]}, lambda line: load.line(line, loop.time()))
    try:
        yield child, load
    finally:
        child.kill()
        await child.exited


async def watched(child: ServerProcess, load: LoadWatch, stall_seconds: float, told: Told) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await watch_load(
            load, ProcessLook(child.pid, with_cached=True, clock=loop.time).take,
            stall_seconds=stall_seconds, instance_id=5, profile_id="p", publish=told.publish, clock=loop.time,
        )  # fmt: skip


@pytest.mark.parametrize("computes", [False, True], ids=["still", "busy"])
async def test_a_load_that_stalls_is_noticed(tmp_path: Path, computes: bool) -> None:
    scenario = {"load_seconds": 0.5, "load_grows_bytes": 300 * MIB, "stall_at": 0.3, "stall_computes": computes}
    told = Told()
    async with loading(tmp_path, scenario, ExpectedBytes(300 * MIB)) as (child, load):
        await watched(child, load, 1.0, told)
        assert not child.exited.done()
    assert load.stage is LoadStage.READING_MODEL
    assert load.fraction is not None
    assert 0.2 < load.fraction < 0.5
    assert {(event.instance_id, event.profile_id) for event in told} == {(5, "p")}
    assert told[-1].stage == "reading-model"


@pytest.mark.slow
async def test_a_slow_load_that_only_grows_is_waited_for(tmp_path: Path) -> None:
    """It takes twice as long as a stall, without a line: what keeps a large model on a slow disk from being ended."""
    scenario = {"load_seconds": 2.0, "load_grows_bytes": 100 * MIB}
    told = Told()
    async with loading(tmp_path, scenario, ExpectedBytes(100 * MIB)) as (child, load):
        watching = asyncio.create_task(watched(child, load, 1.0, told))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while load.stage is not LoadStage.LOADED:
                assert not watching.done()
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.wait({watching})
    fractions = [event.fraction for event in told if event.fraction is not None]
    assert fractions == sorted(fractions)
    assert len(fractions) >= 4
    assert all(later.seconds - earlier.seconds >= 0.24 for earlier, later in pairwise(told))


@pytest.mark.parametrize("verbosity", ["3", "4"])
async def test_the_embedded_engine_comes_through_its_stages(tiny: TinyModels, tmp_path: Path, verbosity: str) -> None:
    assert await _stages_of([*COMMAND], verbosity, tiny, tmp_path) == list(LoadStage)


@pytest.mark.engine
@pytest.mark.parametrize("verbosity", ["3", "4"])
async def test_the_real_engine_comes_through_its_stages(
    engine_path: Path, tiny: TinyModels, tmp_path: Path, verbosity: str
) -> None:
    assert await _stages_of([str(engine_path)], verbosity, tiny, tmp_path) == list(LoadStage)


async def _stages_of(command: list[str], verbosity: str, tiny: TinyModels, folder: Path) -> list[LoadStage]:
    load, loaded = watch(), asyncio.Event()
    stages = [load.stage]

    def hear(line: str) -> None:
        load.line(line, 1.0)
        if load.stage is not stages[-1]:
            stages.append(load.stage)
        if load.stage is LoadStage.LOADED:
            loaded.set()

    flags = ["-m", str(tiny.dense_target), "-md", str(tiny.draft), "--spec-type", "draft-simple", "-c", "256"]
    flags += ["-np", "1", "--fit", "off", "--host", "127.0.0.1", "--port", "0", "-lv", verbosity]
    child = await ServerProcess.start(
        [*command, *flags], environment(PYTHONPATH=str(ROOT), XDG_CONFIG_HOME=str(folder)), hear
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await loaded.wait()
    finally:
        child.kill()
        await child.exited
    return stages


def test_the_fake_prints_the_lines_of_a_load(tmp_path: Path) -> None:
    """Its lines of a load are those of the real engine, so that a test on it means something."""
    model = tmp_path / "m.gguf"
    model.touch()
    Path(f"{model}.scenario.json").write_text('{"abort_after_ready_seconds": 0.0}')
    said = subprocess.run(
        [FAKE_ENGINE, "-m", model, "-md", model, "--port", "0"], capture_output=True, text=True, check=False
    ).stderr
    found = [stage for line in said.splitlines() if (stage := load_stage_of(line))]
    assert found == list(LoadStage)[1:]
