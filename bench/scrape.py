"""What a scrape costs: a service with many profiles that have all served, of which some are alive."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime

from app.events import EventBus
from app.identifiers import first_id_at
from app.instances.evidence import DeviceSample
from app.instances.lease import LaunchContext
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.windows import AcceptanceWindowClosed
from app.inventory.devices import Device
from app.inventory.host import host_memory_now
from app.llama_server.counters import EngineCounters
from app.llama_server.timings import EMPTY, EngineReport
from app.metrics.exposition import openmetrics, plain_text
from app.metrics.series import Series, Sources
from app.proxy.categories import Category
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished

PROFILES, LIVING = 50, 8
LINES_MOST, SECONDS_MOST, ADDED_SECONDS_MOST = 2500, 0.020, 0.005
_TICK_SECONDS = 0.002
_GB = 1 << 30
# The last lives were an hour ago: of these profiles the histograms are at rest.
_HOUR_SECONDS = 3600.0
_TERMS = ("weights", "kv_cache", "compute", "draft_weights", "draft_kv_cache", "draft_compute")
_HOST_TERMS = ("weights", "compute")
_REPORT = EngineReport(
    prompt_tokens=500,
    cached_tokens=100,
    generated_tokens=200,
    prompt_us=100_000,
    generation_us=4_000_000,
    draft_tokens=300,
    accepted_tokens=150,
)


def busy_series(profiles: int = PROFILES, living: int = LIVING) -> Series:
    """Every profile speculates with drafts of four tokens, and has served work of each category, in two ways; `living`
    of them do now, each on two devices and the host. Some requests named a profile that there is not.
    """
    now = [0.0]
    names = [f"profile-{number:02}-with-a-name" for number in range(profiles)]
    committed: Future[None] = Future()
    committed.set_result(None)
    sources = Sources(
        version="1.0.0",
        engine_build=lambda: "b11434",
        profiles=lambda: names,
        queue_limits=lambda: dict.fromkeys(names, 32),
        queue_limit=256,
        methods=lambda: dict.fromkeys(names, "draft"),
        speedups=lambda _: dict.fromkeys(names, 1.83),
        paused=lambda: dict.fromkeys(names[:living], False),
        records=lambda: _records(names, living),
        devices=lambda: [Device(f"CUDA{number}", total_bytes=80 * _GB, free_bytes=_GB) for number in range(8)],
        looks=lambda: {f"CUDA{number}": _look(now[0]) for number in range(8)},
        active=lambda: names[:living] * 4,
        host=host_memory_now,
        rows=lambda: {"request": 1_000_000},
        submit=lambda: committed,
        refused=lambda: dict.fromkeys(("missing", "unknown", "expired", "revoked"), 3),
    )
    series = Series(sources, clock=lambda: now[0])
    bus = EventBus()
    series.subscribe(bus)
    for number, name in enumerate(names):
        _live(bus, name, 2 * number + 1)
        bus.publish(InstanceStateChanged(2 * number + 1, name, InstanceState.STOPPED))
    now[0] += _HOUR_SECONDS
    for number, name in enumerate(names[:living]):
        _live(bus, name, 2 * number + 2)
    bus.publish(_rejected())
    asyncio.run(series.speedups.refresh())
    return series


def _live(bus: EventBus, name: str, instance_id: int) -> None:
    context = LaunchContext(name, 1, "b11434", "0123456789abcdef", "CUDA0,CUDA1", "draft")
    bus.publish(InstanceStateChanged(instance_id, name, InstanceState.LOADING))
    bus.publish(InstanceStateChanged(instance_id, name, InstanceState.READY, load_seconds=12.5))
    for number, category in enumerate(Category):
        bus.publish(
            RequestFinished(
                request_id=first_id_at(1_760_000_000_000 + number),
                client_request_id=None,
                instance_id=instance_id,
                context=context,
                profile_id=name,
                requested_model=name,
                route_reason="id",
                endpoint=Endpoint.CHAT_COMPLETIONS,
                stream=True,
                outcome=Outcome.CLIENT_GONE if number == 0 else Outcome.COMPLETED,
                status_code=200,
                error=None,
                queue_us=1500,
                time_to_first_token_us=250_000,
                duration_us=4_400_000,
                report=_REPORT,
                category=category.value,
            )
        )
    counts = EngineCounters(100, 400, 210, (90, 60, 40, 20), 310, 4_000_000)
    bus.publish(AcceptanceWindowClosed(instance_id, context, 0, 15_000, counts))


def _rejected() -> RequestFinished:
    return RequestFinished(
        request_id=first_id_at(1_760_000_000_000),
        client_request_id=None,
        instance_id=None,
        context=None,
        profile_id=None,
        requested_model="made-up",
        route_reason=None,
        endpoint=Endpoint.CHAT_COMPLETIONS,
        stream=True,
        outcome=Outcome.REJECTED,
        status_code=404,
        error="no profile answers to it",
        queue_us=1500,
        time_to_first_token_us=None,
        duration_us=1500,
        report=EMPTY,
    )


def _records(names: Sequence[str], living: int) -> Sequence[InstanceRecord]:
    devices = {
        **{name: dict.fromkeys(_TERMS, _GB) for name in ("CUDA0", "CUDA1")},
        "host": dict.fromkeys(_HOST_TERMS, _GB),
    }
    return [
        InstanceRecord(
            id=number,
            profile_id=name,
            revision=1,
            state=InstanceState.READY if number < living else InstanceState.STOPPED,
            engine_build="b11434",
            argv=(),
            created_at=datetime.now(UTC),
            speculation={},
            leases=4,
            slots=4,
            memory={"predicted": devices, "measured": devices},
        )
        for number, name in enumerate(names)
    ]


def _look(at_seconds: float) -> DeviceSample:
    return DeviceSample(at_seconds, 0.9, _GB, 80 * _GB, 400.0, 60, (), 1_000_000, 2_000_000)


def run() -> int:
    """Print what scrapes cost; 1 where one is over its budget."""
    over = False
    print(
        f"\nA scrape ({PROFILES} profiles; the budget of {LIVING} alive: {LINES_MOST} lines, {SECONDS_MOST * 1e3:g} ms)"
    )
    for living in (0, LIVING, PROFILES):
        series = busy_series(living=living)
        for kind, write in (("text", plain_text), ("OpenMetrics", openmetrics)):
            seconds = []
            for _ in range(20):
                began = time.perf_counter()
                body = write(series.registry.collect())
                seconds.append(time.perf_counter() - began)
            lines, median, worst = body.count(b"\n"), sorted(seconds)[10], sorted(seconds)[-2]
            over = over or (living <= LIVING and (lines > LINES_MOST or median > SECONDS_MOST))
            print(
                f"  {living:>2} alive, {kind:<11} {lines:>5} lines, {median * 1e3:5.1f} ms (p95 {worst * 1e3:.1f} ms)"
            )
    alone_seconds, beside_seconds = (asyncio.run(_lateness(busy_series(), is_scraped)) for is_scraped in (False, True))
    print(
        f"  an event loop is late by {alone_seconds * 1e3:.1f} ms, beside scrapes {beside_seconds * 1e3:.1f} ms (p99)"
    )
    return int(over or beside_seconds - alone_seconds > ADDED_SECONDS_MOST)


async def _lateness(series: Series, is_scraped: bool) -> float:
    """How late (p99) a loop wakes that asks for it each 2 ms, by itself or while scrapes are made one after another."""
    is_over = False

    def scrape() -> None:
        while not is_over:
            openmetrics(series.registry.collect())

    scraping = asyncio.create_task(asyncio.to_thread(scrape)) if is_scraped else None
    late: list[float] = []
    for _ in range(1000):
        began = time.perf_counter()
        await asyncio.sleep(_TICK_SECONDS)
        late.append(time.perf_counter() - began - _TICK_SECONDS)
    is_over = True
    if scraping is not None:
        await scraping
    return sorted(late)[int(0.99 * len(late))]
