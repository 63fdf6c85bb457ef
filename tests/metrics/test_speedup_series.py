"""What speculation gained, as a gauge."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from fakes.finished_requests import finished

from app.errors import DatabaseUnavailable
from app.metrics.awake import Awake
from app.metrics.collectors import MetricsRegistry
from app.metrics.speedups import SpeedupsCollector

NAME = "paceline_speculation_speedup_ratio"


@dataclass
class Stage:
    """A database that says `says`, or fails; who asked it, and from when on."""

    says: dict[str, float] | Exception = field(default_factory=dict)
    asked: list[tuple[datetime, int]] = field(default_factory=list)
    speculating: set[str] = field(default_factory=lambda: {"fast", "slow"})
    now: float = 0.0

    def __post_init__(self) -> None:
        self.awake = Awake(lambda: self.now)
        self.collector = SpeedupsCollector(
            self.read,
            lambda: self.speculating,
            self.awake,
            pause_least_seconds=0.001,
            committed_seconds=0.001,
            retry_seconds=0.001,
        )
        self.registry = MetricsRegistry()
        self.registry.register(self.collector)

    def read(self, since: datetime) -> dict[str, float]:
        self.asked.append((since, threading.get_ident()))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def shown(self) -> dict[str, float]:
        samples = (sample for metric in self.registry.collect() for sample in metric.samples)
        return {sample.labels["profile"]: sample.value for sample in samples if sample.name == NAME}

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@contextlib.asynccontextmanager
async def reading(stage: Stage) -> AsyncIterator[None]:
    job = asyncio.create_task(stage.collector.run())
    try:
        yield
    finally:
        job.cancel()
        await asyncio.wait({job})


async def test_shown_are_profiles_that_speculate_and_are_awake(stage: Stage) -> None:
    stage.says = {"fast": 1.83, "slow": 0.9, "gone": 3.0}
    await stage.collector.refresh()
    assert stage.shown() == {}
    for profile in stage.says:
        stage.awake.touch(profile)
    assert stage.shown() == {"fast": 1.83, "slow": 0.9}
    stage.speculating.remove("slow")
    assert stage.shown() == {"fast": 1.83}
    stage.now = 900.0
    assert stage.shown() == {}


async def test_it_is_read_beside_the_event_loop_over_seven_days_of_whole_hours(stage: Stage) -> None:
    await stage.collector.refresh()
    ((since, thread),) = stage.asked
    assert thread != threading.get_ident()
    assert since.timestamp() % 3600 == 0
    assert timedelta(days=7) <= datetime.now(UTC) - since < timedelta(days=7, hours=1, minutes=1)


async def test_it_is_read_again_once_more_has_ended(stage: Stage) -> None:
    stage.awake.touch("fast")
    async with reading(stage):
        await stage.until(lambda: len(stage.asked) == 1)
        stage.says = {"fast": 1.5}
        stage.collector.on_request_finished(finished())
        await stage.until(lambda: stage.shown() == {"fast": 1.5})
        # Of those that end while it is read, too.
        stage.collector.on_request_finished(finished())
        await stage.until(lambda: len(stage.asked) >= 3)


@pytest.mark.parametrize("failure", [DatabaseUnavailable("locked"), ValueError("a code of a newer version")])
async def test_a_database_that_cannot_be_read_costs_no_figure(
    stage: Stage, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stage.awake.touch("fast")
    stage.says = {"fast": 1.5}
    async with reading(stage):
        await stage.until(lambda: stage.shown() == {"fast": 1.5})
        stage.says = failure
        before = len(stage.asked)
        stage.collector.on_request_finished(finished())
        # Tried again by itself, and told once.
        await stage.until(lambda: len(stage.asked) > before + 2)
        assert stage.shown() == {"fast": 1.5}
        stage.says = {"fast": 1.6}
        await stage.until(lambda: stage.shown() == {"fast": 1.6})
    assert [record.getMessage() for record in caplog.records if record.name == "app.metrics.speedups"] == [
        f"speed-ups cannot be read, which is tried again: {failure}"
    ]
