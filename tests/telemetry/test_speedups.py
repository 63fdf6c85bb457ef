"""What speculation gained each profile, as /stats tells it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from fakes.finished_requests import CONTEXT, PLAIN_CONTEXT, START_SECONDS, UNDRAFTED, finished
from fixtures.cases import profile
from msgspec import structs

from app.database import Database
from app.instances.lease import LaunchContext
from app.profiles.catalog import ProfileCatalog
from app.proxy.observer import Outcome
from app.speculative.speedup import Estimate
from app.telemetry.comparison import NotCompared, Speedup
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.speedups import (
    FRESH_LEAST_SECONDS,
    FRESH_MOST_SECONDS,
    INTERVALS_MOST,
    Speedups,
    speedup_ratios,
)

FAST = replace(CONTEXT, profile_id="fast", revision=1, method="ngram-mod")
PLAIN = replace(PLAIN_CONTEXT, profile_id="plain", revision=1)
TARGET = "models/t.gguf"


@pytest.fixture
async def catalog(database: Database) -> ProfileCatalog:
    """With `fast` that speculates, and `plain` that does not."""
    catalog = ProfileCatalog(database, lambda _: None)
    catalog.load()
    await catalog.create(profile(id="fast", target={"path": TARGET}, speculation={"method": "ngram-mod"}))
    await catalog.create(profile(id="plain", target={"path": TARGET}))
    return catalog


async def record(
    recorder: Recorder,
    context: LaunchContext,
    rate: float,
    count: int = 10,
    *,
    at: float = 0.0,
    apart: float = 1.0,
    **more: Any,
) -> None:
    """So many requests of 101 tokens, about as fast, `apart` in seconds."""
    chance = random.Random(count)  # noqa: S311
    for number in range(count):
        microseconds = round(1e8 / rate * (1 + 0.01 * chance.uniform(-1, 1)))
        report = structs.replace(UNDRAFTED, generated_tokens=101, generation_us=microseconds)
        recorder.on_request_finished(finished(at + number * apart, context=context, report=report, **more))
    await recorder.flush()


def gained(database: Database, *group_by: str, **filters: Any) -> dict[tuple[Any, ...], Speedup]:
    return dict(Speedups(database).of(RequestFilters(**filters), group_by or ("profile",)))


def is_like(one: Estimate, other: Estimate) -> bool:
    """The same, but for intervals, which are drawn."""
    assert one.interval == pytest.approx(other.interval, rel=0.002)
    return replace(one, interval=None) == replace(other, interval=None)


@pytest.mark.usefixtures("catalog")
async def test_a_profile_against_the_same_target_without_speculation(database: Database, recorder: Recorder) -> None:
    await record(recorder, FAST, 60)
    await record(recorder, PLAIN, 30, 20, at=100)
    assert set(gained(database)) == {("fast",)}
    found = gained(database)["fast",]
    assert found.estimate.speedup == pytest.approx(2.0, rel=0.01)
    low, high = found.estimate.interval or (0, 0)
    assert 1.97 < low < 2.0 < high < 2.03
    assert (found.estimate.requests, found.estimate.baseline_requests, found.estimate.pays) == (10, 20, True)
    assert (found.baselines, found.differences, found.by_category) == (["plain"], [], {})


@pytest.mark.usefixtures("catalog")
async def test_each_category_against_the_same(database: Database, recorder: Recorder) -> None:
    """Slower with translations, which the baseline had mostly: together, it is the profile's own work that counts."""
    await record(recorder, FAST, 100, 30, category="code")
    await record(recorder, FAST, 20, 10, at=50, category="translation")
    await record(recorder, PLAIN, 25, 10, at=100, category="code")
    await record(recorder, PLAIN, 40, 90, at=200, category="translation")
    await record(recorder, FAST, 1000, 4, at=300, category="qa")
    await record(recorder, PLAIN, 1, 90, at=400, category="qa")
    await record(recorder, FAST, 1000, 90, at=500, category="rag")
    found = gained(database)["fast",]
    assert {name: round(each.speedup, 1) for name, each in found.by_category.items()} == {
        "code": 4.0,
        "translation": 0.5,
    }
    assert {name: each.pays for name, each in found.by_category.items()} == {"code": True, "translation": False}
    # 3,000 tokens of code and 1,000 of translations would have taken 145 s, and took 80.
    assert found.estimate.speedup == pytest.approx(145 / 80, rel=0.01)
    by_category = gained(database, "category", "profile")
    assert is_like(by_category["code", "fast"].estimate, found.by_category["code"])
    assert found.not_compared == {"qa": (4, 90), "rag": (90, 0)}
    compared = {key for key, each in by_category.items() if each.estimate is not None}
    assert compared == {("code", "fast"), ("translation", "fast")}
    assert by_category["qa", "fast"].reason is by_category["rag", "fast"].reason is NotCompared.TOO_FEW_REQUESTS
    assert is_like(gained(database, category="translation")["fast",].estimate, found.by_category["translation"])


@pytest.mark.usefixtures("catalog")
async def test_the_baseline_on_the_same_devices_and_build(database: Database, recorder: Recorder) -> None:
    await record(recorder, FAST, 60)
    await record(recorder, replace(PLAIN, engine_build="b2", device_set="cpu"), 3, 50, at=100)
    assert gained(database)["fast",].differences == ["device_set", "engine_build"]
    await record(recorder, replace(PLAIN, device_set="cpu"), 3, 90, at=200)
    assert gained(database)["fast",].differences == ["device_set"]
    await record(recorder, replace(PLAIN, engine_build="b2"), 20, at=300)
    assert (found := gained(database)["fast",]).differences == ["engine_build"]
    assert found.estimate.speedup == pytest.approx(3.0, rel=0.01)
    await record(recorder, PLAIN, 30, 4, at=400)
    assert gained(database)["fast",].differences == ["engine_build"]  # four are not enough
    await record(recorder, PLAIN, 30, 4, at=410)
    assert (found := gained(database)["fast",]).differences == []
    assert found.estimate.speedup == pytest.approx(2.0, rel=0.01)


async def test_of_several_baselines_the_one_with_most_tokens(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """Also a profile that speculates today, and one that is deleted."""
    await catalog.create(profile(id="other", target={"path": "models/./t.gguf"}))
    await catalog.patch("other", {"speculation": {"method": "ngram-mod"}})
    await catalog.delete("other")
    await record(recorder, FAST, 60)
    await record(recorder, PLAIN, 30, at=100)
    await record(recorder, replace(PLAIN, profile_id="other"), 20, 11, at=200)
    found = gained(database)["fast",]
    assert (found.baselines, round(found.estimate.speedup)) == (["other"], 3)


async def test_the_profile_itself_goes_before_others(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """However much they recorded: what makes them slower or faster may be in no setting."""
    await catalog.create(profile(id="slow", target={"path": TARGET}))
    await record(recorder, replace(FAST, revision=1), 80)
    await record(recorder, replace(PLAIN, profile_id="slow"), 20, 90, at=100)
    await record(recorder, replace(PLAIN, profile_id="fast"), 100, at=300)
    found = gained(database)["fast",]
    assert (found.baselines, found.differences) == (["fast"], [])
    assert found.estimate.speedup == pytest.approx(0.8, rel=0.01)
    assert found.estimate.pays is False


async def test_what_differs_besides_speculation_is_named(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """Experts on the host, and another context: the profile that has least of that is the baseline."""
    await catalog.patch("plain", {"placement": {"cpu_moe_layers": 9}, "context": {"size": 512}, "description": "x"})
    await record(recorder, FAST, 60)
    await record(recorder, replace(PLAIN, revision=2), 20, 90, at=100)
    found = gained(database)["fast",]
    assert found.differences == ["context", "placement"]
    assert found.estimate.speedup == pytest.approx(3, rel=0.01)
    await catalog.create(profile(id="near", target={"path": TARGET}, context={"size": 512}))
    await record(recorder, replace(PLAIN, profile_id="near"), 30, at=300)
    found = gained(database)["fast",]
    assert (found.baselines, found.differences) == (["near"], ["context"])
    await record(recorder, PLAIN, 40, at=400)
    assert gained(database)["fast",].differences == []


async def test_a_category_that_the_best_baseline_lacks_is_compared_with_the_next(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    await catalog.create(profile(id="other", target={"path": TARGET}))
    for category, at in (("code", 0), ("qa", 100)):
        await record(recorder, FAST, 60, at=at, category=category)
    await record(recorder, PLAIN, 30, 20, at=200, category="code")
    await record(recorder, PLAIN, 30, 4, at=300, category="qa")
    await record(recorder, replace(PLAIN, profile_id="other"), 20, at=400, category="qa")
    found = gained(database)["fast",]
    assert found.baselines == ["other", "plain"]
    assert {name: round(each.speedup) for name, each in found.by_category.items()} == {"code": 2, "qa": 3}


async def test_launches_with_baselines_of_their_own_add_up(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """A revision had another target: each of its tokens counts as that target would have made it."""
    await catalog.patch("fast", {"target": {"path": "models/big.gguf"}})
    await catalog.create(profile(id="plain-big", target={"path": "models/big.gguf"}))
    await record(recorder, FAST, 60)
    await record(recorder, replace(FAST, revision=2), 10, at=100)
    await record(recorder, PLAIN, 30, at=200)
    await record(recorder, replace(PLAIN, profile_id="plain-big"), 20, at=300)
    found = gained(database)["fast",]
    assert found.baselines == ["plain", "plain-big"]
    # 1,000 tokens each: 33 s and 50 s without, 17 s and 100 s with.
    assert found.estimate.speedup == pytest.approx((1000 / 30 + 1000 / 20) / (1000 / 60 + 1000 / 10), rel=0.01)
    by_revision = gained(database, "profile", "revision")
    assert [round(by_revision["fast", revision].estimate.speedup, 1) for revision in (1, 2)] == [2.0, 0.5]


@pytest.mark.usefixtures("catalog")
async def test_what_is_chosen_is_compared_with_all_of_the_baseline(database: Database, recorder: Recorder) -> None:
    await record(recorder, PLAIN, 30, outcome=Outcome.COMPLETED)
    await record(recorder, FAST, 60, at=1000)
    await record(recorder, FAST, 90, at=2000, outcome=Outcome.CLIENT_GONE)
    await record(recorder, PLAIN, 10, at=3000, outcome=Outcome.CLIENT_GONE)
    since = datetime.fromtimestamp(START_SECONDS + 500, UTC)
    until = datetime.fromtimestamp(START_SECONDS + 1500, UTC)
    assert gained(database, since=since, until=until)["fast",].estimate.requests == 10
    assert gained(database, since=since, profile="fast", method="ngram-mod")["fast",].estimate.requests == 20
    assert gained(database, outcome="client_gone")["fast",].estimate.speedup == pytest.approx(9, rel=0.01)
    assert gained(database, profile="plain") == gained(database, method="none") == {}


@pytest.mark.usefixtures("catalog")
async def test_where_there_is_nothing_to_compare_it_says_why(database: Database, recorder: Recorder) -> None:
    await record(recorder, PLAIN, 30, 4, category="code")
    assert gained(database) == {}  # nothing speculates
    await record(recorder, replace(FAST, revision=9), 60, at=50)  # of a revision that nobody knows
    assert gained(database) == {}
    await record(recorder, FAST, 60, at=100, category="code")
    few = gained(database)["fast",]
    assert (few.estimate, few.reason, few.baselines) == (None, NotCompared.TOO_FEW_REQUESTS, ["plain"])
    assert few.not_compared == {"code": (10, 4)}
    assert gained(database, "category") == gained(database, "method", "revision") == {}


async def test_without_a_baseline_it_says_so(database: Database, recorder: Recorder, catalog: ProfileCatalog) -> None:
    await catalog.create(profile(id="other", target={"path": "models/other.gguf"}))
    await record(recorder, FAST, 60, category="code")
    await record(recorder, replace(PLAIN, profile_id="other"), 30, at=100, category="code")
    await record(recorder, replace(PLAIN, method="mtp"), 30, at=200)
    alone = gained(database)["fast",]
    assert (alone.estimate, alone.reason, alone.baselines) == (None, NotCompared.NO_BASELINE, [])
    assert alone.not_compared == {"code": (10, 0)}


@pytest.mark.usefixtures("catalog")
async def test_it_stays_when_the_rows_go(database: Database, recorder: Recorder) -> None:
    """From roll-ups the same speed-up, and an interval much like it."""
    await record(recorder, FAST, 60, 200, apart=60, category="code")
    await record(recorder, PLAIN, 30, 200, at=1, apart=60, category="code")
    before = gained(database)["fast",]
    later = START_SECONDS + 100 * 86_400
    Retention(database, days=1, bytes_most=0, clock=lambda: later).keep_up()
    with database.read() as session:
        assert session.connection().exec_driver_sql("SELECT count(*) FROM request").scalar() == 0
    after = gained(database)["fast",]
    assert is_like(after.estimate, before.estimate)
    assert after.by_category["code"] == after.estimate
    assert after.estimate.pays


@pytest.mark.usefixtures("catalog")
async def test_many_groups_have_no_intervals(database: Database, recorder: Recorder) -> None:
    await record(recorder, PLAIN, 30, at=100)
    for hour in range(INTERVALS_MOST + 1):
        await record(recorder, FAST, 60, 5, at=hour * 3600)
    found = gained(database, "profile", "hour")
    assert len(found) == INTERVALS_MOST + 1
    assert {each.estimate.interval for each in found.values()} == {None}
    assert all(each.estimate.speedup == pytest.approx(2, rel=0.02) for each in found.values())
    most = datetime.fromtimestamp((START_SECONDS // 3600 + INTERVALS_MOST) * 3600, UTC)
    assert all(each.estimate.interval for each in gained(database, "profile", "hour", until=most).values())


@pytest.mark.usefixtures("catalog")
async def test_an_answer_is_kept_for_a_moment(database: Database, recorder: Recorder) -> None:
    """For a hundred times what it took, in bounds; here it takes no time, or as much as the clock goes on."""
    now, takes_seconds = [0.0], 0.0

    def clock() -> float:
        now[0] += takes_seconds
        return now[0]

    speedups = Speedups(database, clock=clock)

    def requests(*names: str, **filters: Any) -> Sequence[int]:
        return [each.estimate.requests for each in speedups.of(RequestFilters(**filters), names).values()]

    await record(recorder, PLAIN, 30)
    assert requests("profile") == []
    await record(recorder, FAST, 60, at=100)
    assert requests("profile") == []
    assert requests("profile", "method") == requests("profile", profile="fast") == [10]
    now[0] = FRESH_LEAST_SECONDS
    takes_seconds = 5.0
    assert requests("profile", "profile") == [10]
    await record(recorder, FAST, 60, at=200)
    takes_seconds, now[0] = 0.0, now[0] + FRESH_MOST_SECONDS - 1
    assert requests("profile") == [10]
    now[0] += 1
    assert requests("profile") == [20]
    # Those asked least lately are forgotten, however many questions there are.
    await record(recorder, FAST, 60, at=300)
    for number in range(40):
        requests("profile", profile=f"nobody-{number}")
    assert requests("profile") == [30]


@pytest.mark.usefixtures("catalog")
async def test_ratios_alone_are_the_same(database: Database, recorder: Recorder) -> None:
    assert speedup_ratios(database, RequestFilters()) == {}
    await record(recorder, PLAIN, 30, category="code")
    await record(recorder, FAST, 90, 80, at=100, category="code")
    await record(recorder, FAST, 60, 80, at=7200, category="code")
    since = datetime.fromtimestamp(START_SECONDS + 7000, UTC)
    for filters, speedup in ((RequestFilters(), 2.4), (RequestFilters(since=since), 2.0)):
        (ratio,) = speedup_ratios(database, filters).values()
        assert ratio == Speedups(database).of(filters, ("profile",))["fast",].estimate.speedup
        assert ratio == pytest.approx(speedup, rel=0.01)
    Retention(database, days=0, bytes_most=0).keep_up()
    assert speedup_ratios(database, RequestFilters())["fast"] == pytest.approx(2.4, rel=0.01)
