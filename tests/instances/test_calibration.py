"""What loads took, and is kept for the plans of later ones."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.cases import profile
from fixtures.evidences import launched
from fixtures.planning import cards
from fixtures.tiny_models import TinyModels

from app.database import Database
from app.instances.calibration import CalibrationBook
from app.instances.evidence import MeasuredPlacement
from app.launch.report import Launch
from app.placement.calibration import Measured


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'p.db'}")
    database.migrate()
    database.start()
    yield database
    database.close()


@pytest.fixture(scope="module")
def launch(tiny: TinyModels) -> Launch:
    wanted = profile(target={"path": tiny.dense_target.name})
    return launched(tiny.dense_target.parent, wanted, cards(24))


def took(memory: Mapping[str, Mapping[str, int]], *unsettled: str) -> MeasuredPlacement:
    return MeasuredPlacement(memory=memory, unsettled=frozenset(unsettled))


def measured(book: CalibrationBook, launch: Launch) -> Measured:
    build, devices = launch.engine.build, launch.resolved.device_set
    return book.measured(launch.profile.id, launch.revision, build, devices)


async def stored(database: Database, launch: Launch, placement: MeasuredPlacement) -> CalibrationBook:
    book = CalibrationBook(database)
    book.store(launch, placement)
    await database.write(lambda _: None)
    return book


async def test_figures_come_back_for_the_same_launch_and_no_other(database: Database, launch: Launch) -> None:
    figures = {"CUDA0": {"weights": 5, "kv_cache": 6}, "host": {"weights": 7}}
    book = await stored(database, launch, took(figures))
    assert measured(book, launch) == figures
    others = [
        replace(launch, revision=launch.revision + 1),
        replace(launch, profile=launch.profile.model_copy(update={"id": "another"})),
        replace(launch, engine=replace(launch.engine, build="another")),
        replace(launch, resolved=replace(launch.resolved, devices=())),
    ]
    for other in others:
        assert measured(book, other) == {}


async def test_newer_figures_replace_older_ones(database: Database, launch: Launch) -> None:
    await stored(database, launch, took({"CUDA0": {"weights": 5, "kv_cache": 6}}))
    book = await stored(database, launch, took({"CUDA0": {"weights": 8}}))
    assert measured(book, launch) == {"CUDA0": {"weights": 8, "kv_cache": 6}}


async def test_what_grows_after_the_load_and_what_is_not_told_is_not_kept(database: Database, launch: Launch) -> None:
    book = await stored(database, launch, took({"CUDA0": {"weights": 5, "compute": 6}}, "compute"))
    assert measured(book, launch) == {"CUDA0": {"weights": 5}}
    assert measured(await stored(database, replace(launch, revision=9), took({})), replace(launch, revision=9)) == {}
