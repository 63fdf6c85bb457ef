"""Recorded loads of every preset as placements, against the plans of the same launches."""

import pytest
from fixtures.load_shapes import LOAD_SHAPES, REAL, LoadShape, capture_path
from fixtures.loaded import Loaded, loaded
from fixtures.tiny_models import TinyModels

from app.instances.evidence import MeasuredPlacement
from app.instances.measured import PlacementReader, calibration_of
from app.launch.report import predicted_memory
from app.llama_server.load_facts import PRINTED_BYTES, BufferKind, Part
from app.llama_server.load_lines import LoadLines
from app.placement.calibration import ESTIMATED_TERMS, calibrated
from app.profiles.presets import PRESETS

RUNS = [pytest.param(shape, engine, id=f"{shape.id}-{engine}") for shape in LOAD_SHAPES for engine in shape.engines]
# What the planner allows itself beside the engine's own dry run.
ESTIMATE_BYTES = 32 << 20
# Two models in one place, each with two figures; and buffers are padded.
EXACT_BYTES = 4 * (PRINTED_BYTES + 1) + 8192
# Their first layers are planned by free memory or by the engine itself, or nothing is told of places at all.
UNPLANNED = frozenset({"baseline-fitted", "mtp-fitted-debug", "baseline-tensor", "host-speculation-fails"})


def shape_of(shape_id: str) -> LoadShape:
    return next(shape for shape in LOAD_SHAPES if shape.id == shape_id)


def recorded(shape: LoadShape, engine: str = REAL) -> Loaded:
    return loaded(capture_path(shape, engine).read_text(encoding="utf-8").splitlines())


def placed(tiny: TinyModels, shape_id: str, engine: str = REAL) -> MeasuredPlacement:
    """Read as an instance does."""
    shape = shape_of(shape_id)
    lines = recorded(shape, engine)
    reader = PlacementReader()
    told = [reader.line(line) for line in (*lines.until_ready, *lines.after)]
    assert sum(told) == 1
    return reader.placement(shape.launch(tiny))


def test_every_preset_is_among_the_shapes() -> None:
    assert {shape.preset for shape in LOAD_SHAPES} == {preset.id for preset in PRESETS}


@pytest.mark.parametrize(("shape", "engine"), [run for run in RUNS if run.values[0].id not in UNPLANNED])
def test_measured_is_as_planned(tiny: TinyModels, shape: LoadShape, engine: str) -> None:
    launch = shape.launch(tiny)
    measured, planned = placed(tiny, shape.id, engine), predicted_memory(launch.report)
    assert measured.memory
    for place, terms in measured.memory.items():
        for term, n_bytes in terms.items():
            allowed = ESTIMATE_BYTES if term in ESTIMATED_TERMS else EXACT_BYTES
            assert n_bytes == pytest.approx(planned[place][term], abs=allowed), (place, term)
    for place, terms in planned.items():
        told = measured.memory.get(place, {}).keys() | measured.mapped.get(place, {}).keys()
        exact = {term for term in terms if terms[term] > EXACT_BYTES and term not in ("overhead", "host_caches")}
        assert exact <= told


def compute_after_a_request(lines: Loaded) -> dict[str, int]:
    """The target's compute buffers by place in the end: some are made again for the first request."""
    reader = LoadLines()
    for line in (*(line for line in lines.until_ready if "common_param" in line), *lines.after):
        reader.add(line)
    again = reader.facts.by_place(Part.TARGET, BufferKind.COMPUTE)
    return again or lines.facts.by_place(Part.TARGET, BufferKind.COMPUTE)


@pytest.mark.parametrize(("shape", "engine"), RUNS)
def test_a_calibrated_plan_has_room_for_what_the_launch_comes_to_take(
    tiny: TinyModels, shape: LoadShape, engine: str
) -> None:
    planned = shape.plan(tiny)
    measured, taken = placed(tiny, shape.id, engine), compute_after_a_request(recorded(shape, engine))
    corrected = calibrated(planned, calibration_of(measured))
    budgets = [(planned.host, corrected.host, "host")]
    budgets += [(old, new, new.name) for old, new in zip(planned.devices, corrected.devices, strict=True)]
    for old, new, place in budgets:
        changed = {term for term in old.terms if old.terms[term] != new.terms[term]}
        # Weights and caches stay as the files have them.
        assert changed <= {"compute", "draft_compute"}
        if "compute" in measured.unsettled:
            assert "compute" not in changed
        elif place in taken:
            assert taken[place] <= new.terms["compute"] <= taken[place] + 2 * PRINTED_BYTES
        if "draft_compute" in measured.memory.get(place, {}):
            assert new.terms["draft_compute"] >= measured.memory[place]["draft_compute"]


@pytest.mark.parametrize("shape_id", ["host-dspark", "host-eagle3", "host-dflash", "dspark-dual", "dspark-hybrid"])
def test_buffers_that_grow_at_the_first_request_are_not_relied_on(tiny: TinyModels, shape_id: str) -> None:
    shape = shape_of(shape_id)
    at_ready = recorded(shape).facts.by_place(Part.TARGET, BufferKind.COMPUTE)
    later = compute_after_a_request(recorded(shape))
    assert sum(later.values()) > sum(at_ready.values())
    measured = placed(tiny, shape_id)
    assert measured.unsettled == {"compute"}
    assert all("compute" not in terms for terms in calibration_of(measured).values())
    assert any("draft_compute" in terms for terms in calibration_of(measured).values())


def test_a_placement_on_two_devices(tiny: TinyModels) -> None:
    measured = placed(tiny, "dspark-dual")
    assert measured.layers == {"RPC0": 6, "RPC1": 2}
    assert measured.draft_layers == {"RPC1": 1}
    assert measured.methods == ["dspark"]
    assert (measured.draft_tokens_max, measured.slots, measured.context_per_slot) == (5, 1, 1024)
    assert measured.unified_kv is False
    assert set(measured.memory) == {"RPC0", "RPC1", "host"}
    assert measured.memory["RPC0"].keys() == {"weights", "kv_cache", "compute"}
    assert measured.memory["RPC1"].keys() == {
        "weights", "kv_cache", "compute", "draft_weights", "draft_kv_cache", "draft_compute",
    }  # fmt: skip
    assert measured.memory["host"].keys() == {"compute", "draft_compute"}
    assert measured.mapped["host"].keys() == {"weights", "draft_weights"}


def test_the_block_of_multi_token_prediction_is_a_weight_of_the_target(tiny: TinyModels) -> None:
    measured = placed(tiny, "mtp-two")
    assert measured.memory["RPC1"].keys() == {
        "weights", "kv_cache", "recurrent_state", "compute", "draft_kv_cache", "draft_compute",
    }  # fmt: skip
    assert measured.draft_layers == {"RPC1": 1}
    assert measured.methods == ["mtp"]
    unused = placed(tiny, "host-mtp-unused")
    assert unused.methods == []
    assert unused.mapped["host"].keys() == {"weights"}


def test_host_weights_are_told_where_nothing_else_is_mapped(tiny: TinyModels) -> None:
    assert placed(tiny, "baseline-not-mapped").memory["host"]["weights"] > 0
    assert placed(tiny, "host-draft").memory["host"]["draft_weights"] > 0
    hybrid = placed(tiny, "dspark-hybrid")
    assert "weights" not in hybrid.memory["host"]
    assert hybrid.mapped["host"]["weights"] > 0


def test_caches_on_the_host_say_nothing_of_layers(tiny: TinyModels) -> None:
    measured = placed(tiny, "mtp-caches-on-host")
    assert measured.memory["host"]["kv_cache"] > 0
    assert (measured.layers, measured.draft_layers) == ({}, {})


def test_a_split_of_every_layer_tells_no_device(tiny: TinyModels) -> None:
    measured = placed(tiny, "baseline-tensor")
    assert set(measured.memory) == {"host"}
    assert measured.layers == {}


def test_speculation_that_does_not_come_up(tiny: TinyModels) -> None:
    measured = placed(tiny, "host-speculation-fails")
    assert (measured.methods, measured.draft_tokens_max) == ([], None)
    assert not any(term.startswith("draft") for terms in measured.memory.values() for term in terms)
    assert measured.unsettled == {"compute"}


def test_the_longest_draft_is_that_of_the_own_method(tiny: TinyModels) -> None:
    assert placed(tiny, "host-draft-longer-than-trained").draft_tokens_max == 15
    assert placed(tiny, "host-every-ngram").draft_tokens_max == 5
    assert placed(tiny, "host-slots").draft_tokens_max == 4
    assert placed(tiny, "host-baseline").draft_tokens_max is None


def test_nothing_is_made_up_where_nothing_is_told(tiny: TinyModels) -> None:
    launch = shape_of("host-baseline").launch(tiny)
    assert PlacementReader().placement(launch) == MeasuredPlacement()
    assert calibration_of(MeasuredPlacement()) == {}


def test_buffers_made_smaller_for_want_of_memory_are_not_relied_on(tiny: TinyModels) -> None:
    reader = PlacementReader()
    for line in recorded(shape_of("baseline-two")).until_ready:
        if "sched_reserve:" in line and "compute buffer" in line:
            reader.line(
                "0.00.000.000 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism"
            )
        reader.line(line)
    measured = reader.placement(shape_of("baseline-two").launch(tiny))
    assert measured.memory["RPC0"]["compute"] > 0
    assert all("compute" not in terms for terms in calibration_of(measured).values())
