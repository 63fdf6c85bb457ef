"""The measure of speculation, from recorded requests."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.finished_requests import PLAIN_CONTEXT, START_SECONDS, UNDRAFTED, finished
from fixtures.cases import case, engine, profile
from msgspec import structs

from app.database import Database
from app.instances.evidence import Baseline
from app.instances.lease import LaunchContext
from app.launch.report import Launch, PlacementReport, Verdict
from app.llama_server.timings import EngineReport
from app.placement.resolve import resolve
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile
from app.telemetry import baselines as tested
from app.telemetry.baselines import Baselines, baselines
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention

TARGET = "models/t.gguf"
BUILD, DEVICES = "b11434-test", "CUDA0,CUDA1"
PLAIN = replace(PLAIN_CONTEXT, engine_build=BUILD, device_set=DEVICES)
REPORT = structs.replace(UNDRAFTED, generated_tokens=101, generation_us=2_000_000)


def launch(wanted: LaunchProfile) -> Launch:
    report = PlacementReport(Verdict.FITS, "analytic", (), (), {}, (), {}, {}, (), (), {})
    resolved = resolve(case(wanted, device_names=("CUDA0", "CUDA1")))
    return Launch(wanted, 1, engine("CUDA0", "CUDA1"), (), resolved, report)


def wish(name: str, path: str = TARGET, **speculation: Any) -> LaunchProfile:
    return profile(id=name, target={"path": path}, speculation=speculation)


@pytest.fixture
async def catalog(database: Database) -> ProfileCatalog:
    catalog = ProfileCatalog(database, lambda _: None)
    catalog.load()
    return catalog


async def record(recorder: Recorder, context: LaunchContext, report: EngineReport, count: int, start: int = 0) -> None:
    for number in range(count):
        recorder.on_request_finished(finished(start + number, context=context, report=report))
    await recorder.flush()


def known(database: Database, path: str = TARGET) -> list[Baseline]:
    with database.read() as session:
        return [baseline for baseline, _ in baselines(session, path, BUILD, DEVICES)]


async def test_requests_of_the_same_target_without_speculation(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    await catalog.create(wish("plain"))
    await record(recorder, PLAIN, REPORT, 3)
    assert known(database) == [Baseline("plain", 3, 303, 6.0)]
    assert known(database, "models/./t.gguf") == known(database)
    assert known(database, "models/other.gguf") == []


@pytest.mark.parametrize(
    "changes", [{"method": "mtp"}, {"engine_build": "b2"}, {"device_set": "cpu"}, {"revision": 2}, {"revision": None}]
)
async def test_what_was_served_otherwise_does_not_count(
    changes: dict[str, Any], database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """Another method, build or devices; a revision that nobody knows."""
    await catalog.create(wish("plain"))
    await record(recorder, replace(PLAIN, **changes), REPORT, 3)
    assert known(database) == []


async def test_text_that_is_copied_is_speculation_too(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    await catalog.create(wish("plain", also=["ngram-mod"]))
    await record(recorder, PLAIN, REPORT, 3)
    assert known(database) == []


async def test_a_request_without_a_rate_does_not_count(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    await catalog.create(wish("plain"))
    await record(recorder, PLAIN, structs.replace(REPORT, generated_tokens=1), 1)
    await record(recorder, PLAIN, structs.replace(REPORT, generation_us=0), 1, start=10)
    await record(recorder, PLAIN, EngineReport(), 1, start=20)
    assert known(database) == []
    await record(recorder, PLAIN, structs.replace(REPORT, generated_tokens=2), 1, start=30)
    assert known(database) == [Baseline("plain", 1, 2, 2.0)]


async def test_revisions_are_added_up_and_changed_targets_left_out(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """The profile itself, before it speculated, is a baseline, also once it is deleted."""
    await catalog.create(wish("plain"))
    await catalog.patch("plain", {"description": "the same"})
    await catalog.patch("plain", {"target": {"path": "models/other.gguf"}})
    await catalog.delete("plain")
    for revision, start in ((1, 0), (2, 10), (3, 20)):
        await record(recorder, replace(PLAIN, revision=revision), REPORT, 2, start)
    assert known(database) == [Baseline("plain", 4, 404, 8.0)]


async def test_the_newest_requests_count(database: Database, recorder: Recorder, catalog: ProfileCatalog) -> None:
    await catalog.create(wish("plain"))
    await record(recorder, PLAIN, structs.replace(REPORT, generation_us=50_000_000), 5)
    await record(recorder, PLAIN, REPORT, tested.ROWS_MOST, start=10)
    assert known(database) == [Baseline("plain", 1000, 101_000, 2000.0)]


async def test_a_baseline_stays_when_its_rows_go(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    await catalog.create(wish("plain"))
    await record(recorder, PLAIN, REPORT, 3)
    await record(recorder, PLAIN, structs.replace(REPORT, generated_tokens=1), 1, start=10)
    later = START_SECONDS + 100 * 86_400
    Retention(database, days=1, bytes_most=0, clock=lambda: later).keep_up()
    with database.read() as session:
        assert session.connection().exec_driver_sql("SELECT count(*) FROM request").scalar() == 0
    assert known(database) == [Baseline("plain", 3, 303, 6.0)]


async def test_a_launch_that_speculates_gets_the_best_known(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    for name in ("few", "many"):
        await catalog.create(wish(name))
    await record(recorder, replace(PLAIN, profile_id="few"), REPORT, 1)
    await record(recorder, replace(PLAIN, profile_id="many"), REPORT, 2, start=10)
    wanted = wish("fast", method="ngram-mod")
    assert await Baselines(database).of(launch(wanted)) == Baseline("many", 2, 202, 4.0)
    assert await Baselines(database).of(launch(wish("fast", path="x.gguf", method="ngram-mod"))) is None
    assert await Baselines(database).of(launch(wish("slow"))) is None


@pytest.mark.parametrize(("count", "chosen"), [(9, "other"), (10, "mine")])
async def test_what_the_profile_itself_recorded_goes_before_more_of_another(
    count: int, chosen: str, database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """Another of the same target may be slow for its context, or for experts on the host."""
    await catalog.create(wish("mine"))
    await catalog.create(wish("other"))
    await record(recorder, replace(PLAIN, profile_id="mine"), REPORT, count)
    await record(recorder, replace(PLAIN, profile_id="other"), REPORT, 30, start=100)
    found = await Baselines(database).of(launch(wish("mine", method="ngram-mod")))
    assert found is not None
    assert found.profile_id == chosen


async def test_settings_that_are_the_same_go_before_more_requests(
    database: Database, recorder: Recorder, catalog: ProfileCatalog
) -> None:
    """Also before the profile's own with others: what it was before it got a larger context."""
    await catalog.create(profile(id="mine", target={"path": TARGET}, context={"size": 1024}))
    await catalog.create(wish("same"))
    await record(recorder, replace(PLAIN, profile_id="mine"), REPORT, 30)
    await record(recorder, replace(PLAIN, profile_id="same"), REPORT, 10, start=100)
    found = await Baselines(database).of(launch(wish("mine", method="ngram-mod")))
    assert found == Baseline("same", 10, 1010, 20.0)
