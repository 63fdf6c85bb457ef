"""What is said of recorded loads of the real engine: the evidence here is its own output, not a copy of the plan."""

import pytest
from fixtures.load_shapes import LOAD_SHAPES, REAL, LoadShape, capture_path
from fixtures.loaded import loaded
from fixtures.tiny_models import TinyModels

from app.findings import Finding, Severity
from app.instances.diagnosis import degradations_of, diagnose
from app.instances.evidence import Evidence
from app.instances.measured import PlacementReader

SHAPES = {shape.id: shape for shape in LOAD_SHAPES}
RUNS = [pytest.param(shape, engine, id=f"{shape.id}-{engine}") for shape in LOAD_SHAPES for engine in shape.engines]
# What their profiles ask for; each of the others became what was planned, and nothing is to be said.
SAID = {
    "host-speculation-fails": {"speculation-inactive"},
    "host-slots": {"slots-share-context"},
    "dspark-dual-apart": {"draft-apart"},
}


def said(planned: LoadShape, seen: LoadShape, engine: str, tiny: TinyModels) -> list[Finding]:
    """The findings where one launch was planned and the output is that of another."""
    launch, reader = planned.launch(tiny), PlacementReader()
    for line in loaded(capture_path(seen, engine).read_text(encoding="utf-8").splitlines()).until_ready:
        reader.line(line)
    placed = reader.placement(launch)
    speculates = bool(launch.profile.speculation.methods) and placed.methods != []
    return diagnose(Evidence(launch, speculates, placed.slots, placed.context_per_slot, placed))


@pytest.mark.parametrize(("shape", "engine"), RUNS)
def test_what_is_said_of_a_recorded_load(shape: LoadShape, engine: str, tiny: TinyModels) -> None:
    found = said(shape, shape, engine, tiny)
    assert {verdict.rule for verdict in found} == SAID.get(shape.id, set()), [verdict.message for verdict in found]
    assert set(degradations_of(found)) == SAID.get(shape.id, set()) & {"speculation-inactive"}


@pytest.mark.parametrize(
    ("planned", "seen", "rule"),
    [
        ("draft-two", "draft-on-host", "draft-on-host"),
        ("dspark-dual", "dspark-dual-apart", "draft-apart"),
        ("baseline-two", "baseline-part", "layers-on-host"),
        ("host-draft", "host-speculation-fails", "speculation-inactive"),
        ("host-ngram", "host-baseline", "speculation-inactive"),
    ],
)
def test_a_load_that_became_another_than_planned(planned: str, seen: str, rule: str, tiny: TinyModels) -> None:
    found = said(SHAPES[planned], SHAPES[seen], REAL, tiny)
    assert {verdict.rule: verdict.severity for verdict in found} == {rule: Severity.WARNING}
    assert degradations_of(found) == (rule,)
