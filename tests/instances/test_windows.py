"""When engines are read, and what becomes of their counts. The engine is a socket that answers what the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from proxy.scripted_engine import EngineConnection, EngineRequest, ScriptedEngine, scripted_engine, whole, within

from app.events import Event
from app.instances.lease import LaunchContext, Upstream
from app.instances.prepared import Prepared
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.windows import AcceptanceWindowClosed, AcceptanceWindows
from app.llama_server.counters import EngineCounters

CONTEXT = LaunchContext("small", 3, "b11434", "0123456789abcdef", "cpu", "draft")
TOLD = """\
llamacpp:tokens_predicted_total {0}00
llamacpp:tokens_predicted_seconds_total {0}
llamacpp:spec_decode_num_draft_tokens_total {0}0
llamacpp:spec_decode_num_accepted_tokens_total {0}
llamacpp:spec_decode_num_drafts_total {0}
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {0}
"""


def counts(number: int) -> EngineCounters:
    return EngineCounters(number, 10 * number, number, (number,), 100 * number, 1_000_000 * number)


@dataclass
class Stage:
    """One engine; `says` is what it has counted, or what it answers instead. Clocks stand still until they are set."""

    says: int | Callable[[EngineConnection], object] = 0
    now: float = 1000.0
    windows: list[AcceptanceWindowClosed] = field(default_factory=list)
    lives: list[Prepared] = field(default_factory=list)

    async def answer(self, request: EngineRequest, connection: EngineConnection) -> None:
        assert request.line == b"GET /metrics HTTP/1.1"
        assert request.headers[b"authorization"] == [b"Bearer launch-key"]
        if isinstance(self.says, int):
            await connection.write(whole(TOLD.format(self.says).encode()))
        elif (waited := self.says(connection)) is not None:
            await waited  # type: ignore[misc]

    def publish(self, event: Event) -> None:
        assert isinstance(event, AcceptanceWindowClosed)
        self.windows.append(event)

    def counted(self) -> list[tuple[int, int, EngineCounters]]:
        """The windows since the last call: from, to, counts."""
        found = [(each.started_at_milliseconds, each.ended_at_milliseconds, each.counts) for each in self.windows]
        assert all((each.instance_id, each.context) == (7, CONTEXT) for each in self.windows)
        self.windows.clear()
        return found


@asynccontextmanager
async def staged(*, may_draft: bool = True) -> AsyncIterator[tuple[Stage, AcceptanceWindows, ScriptedEngine]]:
    """An engine that became ready at second 1000."""
    stage = Stage()
    async with scripted_engine(stage.answer) as engine:
        upstream = Upstream(7, "launch-key", socket_path=engine.socket_path)
        stage.lives.append(Prepared((), {}, replace(upstream, may_draft=may_draft), CONTEXT))
        windows = AcceptanceWindows(
            lambda: stage.lives, stage.publish, clock=lambda: stage.now, wall_clock=lambda: stage.now
        )
        windows.on_instance_state(InstanceStateChanged(7, "small", InstanceState.READY))
        yield stage, windows, engine


async def test_a_window_has_what_was_counted_since_the_one_before() -> None:
    async with staged() as (stage, windows, _):
        stage.says, stage.now = 5, 1015.0
        await windows.look()
        assert stage.counted() == [(1_000_000, 1_015_000, counts(5))]
        stage.says, stage.now = 7, 1030.5
        await windows.look()
        assert stage.counted() == [(1_015_000, 1_030_500, counts(2))]


async def test_where_nothing_was_drafted_there_is_no_window() -> None:
    async with staged() as (stage, windows, _):
        stage.now = 1015.0
        await windows.look()
        assert stage.counted() == []
        stage.says, stage.now = 1, 1030.0
        await windows.look()
        assert stage.counted() == [(1_015_000, 1_030_000, counts(1))]


async def test_an_engine_that_counts_anew_begins_from_zero() -> None:
    async with staged() as (stage, windows, _):
        stage.says = 5
        await windows.look()
        stage.says = 2
        await windows.look()
        assert [counted for _, _, counted in stage.counted()] == [counts(5), counts(2)]


async def test_an_engine_that_cannot_draft_is_never_asked() -> None:
    async with staged(may_draft=False) as (_, windows, engine):
        await windows.look()
        await windows.last_look(engine_life(engine, may_draft=False), False)
        assert engine.requests == []


def engine_life(engine: ScriptedEngine, *, may_draft: bool = True) -> Prepared:
    upstream = Upstream(7, "launch-key", socket_path=engine.socket_path, may_draft=may_draft)
    return Prepared((), {}, upstream, CONTEXT)


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: connection.write(whole(b"{}", status=b"501 Not Implemented")),
        lambda connection: connection.write(whole(b"{}", status=b"503 Service Unavailable")),
        lambda connection: connection.write(b"nonsense\r\n\r\n"),
        lambda connection: connection.cut(),
    ],
    ids=["no metrics", "loading", "nonsense", "cut"],
)
async def test_what_an_engine_does_not_tell_now_comes_later(answer: Callable[[EngineConnection], object]) -> None:
    async with staged() as (stage, windows, _):
        stage.says = answer
        await windows.look()
        await windows.last_look(stage.lives[0], False)
        assert stage.counted() == []
        stage.says, stage.now = 3, 1060.0
        await windows.look()
        assert stage.counted() == [(1_000_000, 1_060_000, counts(3))]


async def test_an_engine_that_somebody_else_scrapes_is_left_alone_and_nothing_is_lost() -> None:
    async with staged() as (stage, windows, engine):
        windows.scraped("other")
        stage.says = 1
        await windows.look()
        windows.scraped("small")
        stage.says, stage.now = 4, 1599.0
        await windows.look()
        assert [each[2] for each in stage.counted()] == [counts(1)]
        assert len(engine.requests) == 1
        # Ten minutes after the last scrape, or at the end of the life.
        stage.now = 1600.0
        await windows.look()
        windows.scraped("small")
        stage.says = 5
        await windows.last_look(stage.lives[0], False)
        assert stage.counted() == [(1_000_000, 1_600_000, counts(3)), (1_600_000, 1_600_000, counts(1))]


async def test_whether_an_engine_is_left_alone_is_told_while_it_serves() -> None:
    async with staged() as (stage, windows, engine):
        assert windows.paused() == {"small": False}
        windows.scraped("small")
        windows.scraped("other")
        stage.now = 1599.0
        assert windows.paused() == {"small": True}
        stage.now = 1600.0
        assert windows.paused() == {"small": False}
        stage.lives[:] = [engine_life(engine, may_draft=False)]
        assert windows.paused() == {}


async def test_the_last_look_waits_for_one_that_is_under_way() -> None:
    async with staged() as (stage, windows, engine):
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def answer_late(connection: EngineConnection) -> None:
            is_asked.set()
            await may_answer.wait()
            await connection.write(whole(TOLD.format(5).encode()))

        stage.says = answer_late
        first = asyncio.create_task(windows.look())
        await within(is_asked.wait())
        stage.says = 6
        last = asyncio.create_task(windows.last_look(stage.lives[0], False))
        # A further look passes by; it asks nothing meanwhile.
        await within(windows.look())
        assert len(engine.requests) == 1
        may_answer.set()
        await within(asyncio.gather(first, last))
        assert [each[2] for each in stage.counted()] == [counts(5), counts(1)]


async def test_the_last_look_gives_up_within_a_second_and_holds_nothing() -> None:
    async with staged() as (stage, windows, engine):
        stage.says = lambda connection: connection.watch()
        begun = asyncio.get_running_loop().time()
        await windows.last_look(stage.lives[0], False)
        assert asyncio.get_running_loop().time() - begun < 2
        await within(engine.connections[0].gone.wait())
        stage.says = 2
        await windows.look()
        assert [each[2] for each in stage.counted()] == [counts(2)]


async def test_a_life_that_is_over_is_forgotten() -> None:
    async with staged() as (stage, windows, engine):
        stage.says = 5
        await windows.look()
        windows.on_instance_state(InstanceStateChanged(7, "small", InstanceState.FAILED))
        stage.lives.clear()
        await windows.look()
        # Were its counts still known, the same engine's would be told as a difference.
        stage.lives.append(engine_life(engine))
        await windows.look()
        assert [each[2] for each in stage.counted()] == [counts(5), counts(5)]


def test_engines_are_never_read_each_second() -> None:
    with pytest.raises(ValueError, match="clients that leave"):
        AcceptanceWindows(list, lambda _: None, pause_seconds=1.0)


async def test_it_reads_again_and_again() -> None:
    async with staged() as (stage, _, engine):
        windows = AcceptanceWindows(lambda: stage.lives, stage.publish, pause_seconds=1.01)
        asked = asyncio.Event()
        stage.says = lambda _: asked.set()
        running = asyncio.create_task(windows.run())
        await within(asked.wait())
        running.cancel()
        assert len(engine.requests) == 1
