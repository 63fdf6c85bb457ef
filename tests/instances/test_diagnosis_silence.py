"""An instance that became what was planned and runs well: nothing is said of it, for every preset."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fixtures.evidences import LOOKS, as_planned, launched, looks, processes
from fixtures.planning import MIB, cards
from fixtures.tiny_models import TinyModels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.instances.diagnosis import DEGRADATIONS, degradations_of, diagnose
from app.instances.evidence import Baseline, Evidence, MeasuredPlacement, Tally
from app.launch.report import Launch
from app.profiles.presets import PRESETS
from app.profiles.profile import merge_patch, parse_profile

_FILES = {
    "mtp": ("mtp_target", None),
    "dspark-single-gpu": ("dense_target", "dspark"),
    "dspark-dual-gpu": ("dense_target", "dspark"),
    "dspark-hybrid": ("moe_target", "dspark"),
    "draft": ("dense_target", "draft"),
    "dflash": ("dense_target", "dflash"),
    "eagle3": ("dense_target", "eagle3"),
}
explored = settings(
    derandomize=True,
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def shaped(tiny: TinyModels) -> Callable[[str], Launch]:
    """The launch of a preset on two cards."""
    known: dict[str, Launch] = {}

    def launch(preset_id: str) -> Launch:
        if preset_id not in known:
            target, draft = _FILES.get(preset_id, ("dense_target", None))
            preset = next(preset for preset in PRESETS if preset.id == preset_id)
            paths = [getattr(tiny, name).name for name in (target, draft) if name]
            wanted = merge_patch(preset.filled("p", *paths).model_dump(mode="json"), {"context": {"size": 4096}})
            known[preset_id] = launched(tiny.dense_target.parent, parse_profile(wanted), cards(24, 24))
        return known[preset_id]

    return launch


@st.composite
def well(draw: st.DrawFn, launch: Launch) -> Evidence:
    """As planned, within what figures scatter by."""
    evidence = as_planned(launch)
    assert evidence.measured is not None
    noise = st.integers(-(60 * MIB), 60 * MIB)
    memory = {
        name: {
            # What the plan has not got is not there; draft bytes are exact.
            term: n_bytes if term.startswith("draft_") else max(0, n_bytes + draw(noise))
            for term, n_bytes in terms.items()
        }
        for name, terms in evidence.measured.memory.items()
    }
    rates = st.lists(st.floats(0.71, 1.0), min_size=5, max_size=5)
    free = {name: each[0].free_bytes or 0 for name, each in evidence.devices.items()}
    seconds = draw(st.floats(100.0, 600.0 / 0.96))
    accepted = draw(st.integers(751, 15_000)) if evidence.tally.draft_tokens else 0
    return replace(
        evidence,
        measured=replace(evidence.measured, memory=memory),
        devices={
            name: looks(
                draw(rates) * (LOOKS // 5), n_bytes + draw(noise), 24 << 30, throttle_reasons=("application-clocks",)
            )
            for name, n_bytes in free.items()
        },
        processes=processes(draw(st.lists(st.floats(0, 16), min_size=5, max_size=5)) * (LOOKS // 5)),
        tally=replace(evidence.tally, generation_seconds=seconds, accepted_tokens=accepted),
    )


@pytest.mark.parametrize("preset_id", [preset.id for preset in PRESETS])
@explored
@given(data=st.data())
def test_nothing_is_said_of_what_became_as_planned(
    preset_id: str, data: st.DataObject, shaped: Callable[[str], Launch]
) -> None:
    assert diagnose(data.draw(well(shaped(preset_id)))) == []


@pytest.mark.parametrize("preset_id", [preset.id for preset in PRESETS])
def test_nothing_is_said_of_what_is_not_known(preset_id: str, shaped: Callable[[str], Launch]) -> None:
    """Only that speculation is proven is asked for."""
    launch = shaped(preset_id)
    bare = Evidence(launch, bool(launch.profile.speculation.methods), None, None)
    assert diagnose(bare) == []
    untold = replace(bare, measured=MeasuredPlacement(), devices={"CUDA0": looks([None] * LOOKS, None, None)})
    assert diagnose(untold) == []


@pytest.mark.parametrize("changes", [{"tally": Tally()}, {"baseline": None}, {"baseline": Baseline("x", 0, 0, 0.0)}])
def test_nothing_is_said_of_an_instance_that_nobody_asked_yet(
    changes: dict[str, Any], shaped: Callable[[str], Launch]
) -> None:
    assert diagnose(as_planned(shaped("dspark-dual-gpu"), **changes)) == []


def test_the_ids_of_degradations_are_those_of_rules(drafted: Launch) -> None:
    """`info` is advice, whatever its id; each id is told once, in order."""
    lost = as_planned(drafted, speculates=False, context_per_slot=100, tally=Tally(100, 20_100, 400.0, 1000, 1))
    found = diagnose(lost)
    assert degradations_of([*found, *found]) == (
        "acceptance-collapsed",
        "context-smaller-than-asked",
        "speculation-inactive",
    )
    assert set(degradations_of(found)) <= DEGRADATIONS
