"""Which machine a check is about: this one as the profile's variables show it, or the one in the question."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from fixtures.cases import HOST, devices, profile
from fixtures.checks import launch_check
from fixtures.tiny_models import TinyModels

from app.inventory.devices import Machine
from app.launch.check import LaunchCheck
from app.llama_server.engine import find_engine
from app.llama_server.probe import EngineProbe

FAKE = Path(__file__).parent.parent / "fakes" / "llama_server.py"


class ThisMachine:
    """Lists one card, or the two that a profile asks for."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []

    async def now(self, env: Mapping[str, str]) -> Machine:
        self.asked.append(dict(env))
        return Machine(
            devices("CUDA0", "CUDA1") if env.get("CUDA_VISIBLE_DEVICES") == "0,1" else devices("CUDA0"), HOST
        )


@pytest.fixture
def this_machine() -> ThisMachine:
    return ThisMachine()


@pytest.fixture
def check(tiny: TinyModels, this_machine: ThisMachine) -> LaunchCheck:
    probe = EngineProbe(lambda: find_engine(str(FAKE)))
    return launch_check(tiny.dense_target.parent, probe=probe, machine=this_machine.now)


DRAFTED = {"method": "draft", "draft": {"path": "draft.gguf"}}


async def test_the_draft_goes_to_the_device_of_the_output_as_the_machine_lists_it(
    check: LaunchCheck, this_machine: ThisMachine
) -> None:
    plain = await check.check(profile(speculation=DRAFTED), 1)
    assert plain.report.resolved["draft_device"] == "CUDA0"
    both = await check.check(profile(speculation=DRAFTED, env={"CUDA_VISIBLE_DEVICES": "0,1"}), 1)
    assert both.report.resolved["draft_device"] == "CUDA1"
    assert this_machine.asked == [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}]


async def test_a_machine_in_the_question_counts_alone(check: LaunchCheck, this_machine: ThisMachine) -> None:
    other = Machine(devices("ROCm0", "ROCm1", "ROCm2"), HOST)
    checked = await check.check(profile(speculation=DRAFTED), 1, machine=other)
    assert checked.report.resolved["draft_device"] == "ROCm2"
    assert [device["name"] for device in checked.report.devices] == ["ROCm0", "ROCm1", "ROCm2"]
    assert this_machine.asked == []
