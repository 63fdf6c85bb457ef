"""Where a check works: what may take long is not done on the event loop."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from fixtures.cases import profile
from fixtures.checks import launch_check
from fixtures.planning import cards
from fixtures.sparse_models import write_model
from fixtures.tiny_models import TinyModels

from app.inventory.devices import Machine
from app.launch.circumstances import OtherLaunches
from app.launch.report import PlacementReport

V = TypeVar("V")


class Watched(Mapping[str, V], Generic[V]):
    """A mapping that knows the threads that looked into it."""

    def __init__(self, known: Mapping[str, V]) -> None:
        self._known = known
        self.threads: set[int] = set()

    def __getitem__(self, key: str) -> V:
        self.threads.add(threading.get_ident())
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        self.threads.add(threading.get_ident())
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


async def test_rules_plans_and_fixes_are_made_in_a_thread(tmp_path: Path) -> None:
    write_model("qwen3_32b", tmp_path)
    claims = Watched[list[str]]({"p": []})
    reserved = Watched[int]({"CUDA0": 1 << 20})
    check = launch_check(tmp_path, claims=lambda _: claims, others=OtherLaunches(reserved, {}), machine=two_small_cards)
    wanted = profile(target={"path": "qwen3_32b.gguf"}, context={"size": 32_768})
    report = (await check.check(wanted, 1)).report
    (found,) = (found for found in report.findings if found.rule == "device-memory")
    assert found.fixes
    loop = threading.get_ident()
    assert claims.threads
    assert reserved.threads
    assert loop not in claims.threads | reserved.threads


async def test_checks_at_the_same_time_do_not_disturb_each_other(tiny: TinyModels) -> None:
    check = launch_check(tiny.dense_target.parent)
    sizes = [256 * (1 + number % 4) for number in range(16)]
    wanted = [profile(context={"size": size}) for size in sizes]
    alone: Mapping[int, PlacementReport] = {
        size: (await check.check(each, 1)).report for size, each in zip(sizes, wanted, strict=True)
    }
    together = await asyncio.gather(*(check.check(each, 1) for each in wanted))
    assert [checked.report for checked in together] == [alone[size] for size in sizes]


async def test_a_pattern_that_is_refused_is_not_looked_for(tiny: TinyModels) -> None:
    """The search for it would not end, and a thread would not help: it holds the interpreter."""
    check = launch_check(tiny.dense_target.parent)
    hostile = [r"(.{1,9}){9}!=CPU", r"(a|[^!]|b)*(c|[^!])*!=CPU"]
    wanted = profile(placement={"override_tensor": [*hostile, r"blk\.0\.ffn_up=CPU"]})
    report = (await asyncio.wait_for(check.check(wanted, 1), 30)).report
    (found,) = (found for found in report.findings if found.rule == "flag-value")
    assert found.fixes[0].patch == {"placement": {"override_tensor": [r"blk\.0\.ffn_up=CPU"]}}
    assert report.argv[report.argv.index("--override-tensor") + 1].startswith(hostile[0])


@pytest.mark.parametrize("pattern", [".?" * 25 + "x!", "(.|..|...)" * 12 + "[!?]"])
async def test_a_pattern_that_takes_too_long_is_a_finding_and_the_plan_goes_on(tiny: TinyModels, pattern: str) -> None:
    check = launch_check(tiny.dense_target.parent)
    kept = r"blk\.0\.ffn_up=CPU"
    machine = cards(8, 8)
    plain = (await check.check(profile(placement={"override_tensor": [kept]}), 1, machine=machine)).report
    wanted = profile(placement={"override_tensor": [f"{pattern}=CPU", kept]})
    report = (await asyncio.wait_for(check.check(wanted, 1, machine=machine), 30)).report
    (found,) = (found for found in report.findings if found.rule == "flag-value")
    assert found.observed == f"{pattern}=CPU"
    assert found.fixes[0].patch == {"placement": {"override_tensor": [kept]}}
    assert (report.devices, report.host, report.layers) == (plain.devices, plain.host, plain.layers)


async def two_small_cards(_: Mapping[str, str]) -> Machine:
    return cards(8, 8)
