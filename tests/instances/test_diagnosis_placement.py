"""Where things really are: drafts, layers, context. Both sides of each, on the plans of real launches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fixtures.evidences import as_planned, found, measured, moved, patched
from fixtures.planning import cards

from app.findings import Severity
from app.instances.diagnosis import degradations_of, diagnose
from app.instances.evidence import MeasuredPlacement
from app.launch.report import Launch

DRAFT_TERMS = ("draft_weights", "draft_kv_cache")
Large = Callable[..., Launch]


def without_layers(launch: Launch) -> MeasuredPlacement:
    return replace(measured(launch), layers={}, draft_layers={})


@pytest.fixture(scope="session")
def two(large: Large) -> Launch:
    """The drafter on the card that holds the output, the target over both."""
    return large(
        "qwen3_8b",
        "dspark_qwen3_8b_head",
        speculation={"method": "dspark", "draft": {"device": "CUDA1"}, "draft_tokens_max": 5},
        placement={"tensor_split": [1, 1]},
        context={"size": 8192},
    )


@pytest.fixture(scope="session")
def apart(large: Large) -> Launch:
    """The drafter on the other card, as its profile asks."""
    return large(
        "qwen3_8b",
        "dspark_qwen3_8b_head",
        speculation={"method": "dspark", "draft": {"device": "CUDA0"}, "draft_tokens_max": 5},
        placement={"tensor_split": [1, 1]},
        context={"size": 8192},
    )


@pytest.mark.parametrize(("share", "is_found"), [(0.05, False), (0.15, True), (1.0, True)])
def test_draft_bytes_on_the_host(share: float, is_found: bool, drafted: Launch) -> None:
    evidence = as_planned(drafted, measured=moved(without_layers(drafted), "CUDA0", "host", DRAFT_TERMS, share))
    verdict = found("draft-on-host", evidence)
    assert (verdict is not None) is is_found
    if verdict is not None:
        assert "draft-on-host" in degradations_of(diagnose(evidence))
        assert patched(drafted.profile, verdict.fixes[-1]).speculation.methods == ()


@pytest.mark.parametrize(("on_host", "is_found"), [(0, False), (1, True)])
def test_draft_layers_on_the_host_count_where_they_are_told(on_host: int, is_found: bool, drafted: Launch) -> None:
    placed = replace(measured(drafted), draft_layers={"CUDA0": 5 - on_host, "host": on_host})
    assert (found("draft-on-host", as_planned(drafted, measured=placed)) is not None) is is_found


def test_more_on_the_host_is_no_draft_there_while_the_device_has_all_of_it(drafted: Launch) -> None:
    placed = without_layers(drafted)
    memory = {**placed.memory, "host": {**placed.memory["host"], "draft_weights": 4 << 30}}
    assert found("draft-on-host", as_planned(drafted, measured=replace(placed, memory=memory))) is None


def test_a_draft_that_was_planned_on_the_host_is_no_news(large: Large) -> None:
    """Some of its layers, or all."""
    for draft in ({"device": "none"}, {"device": "CUDA0", "gpu_layers": 3}):
        launch = large(
            "qwen3_8b",
            "dspark_qwen3_8b_head",
            speculation={"method": "dspark", "draft": draft},
            placement={"devices": ["CUDA0"]},
            context={"size": 8192},
        )
        placed = replace(measured(launch), draft_layers={"CUDA0": 2, "host": 4})
        assert found("draft-on-host", as_planned(launch, measured=placed)) is None
        fewer = replace(placed, draft_layers={"CUDA0": 1, "host": 5})
        is_found = draft["device"] != "none"
        assert (found("draft-on-host", as_planned(launch, measured=fewer)) is not None) is is_found


@pytest.mark.parametrize(("share", "is_found"), [(0.0, False), (0.09, False), (0.5, True), (1.0, True)])
def test_a_draft_away_from_the_output(share: float, is_found: bool, two: Launch) -> None:
    evidence = as_planned(two, measured=moved(measured(two), "CUDA1", "CUDA0", DRAFT_TERMS, share))
    verdict = found("draft-apart", evidence)
    assert (verdict is not None) is is_found
    if verdict is not None:
        assert verdict.severity is Severity.WARNING
        assert "draft-apart" in degradations_of(diagnose(evidence))


def test_a_draft_that_is_apart_as_asked_is_advice(apart: Launch) -> None:
    evidence = as_planned(apart)
    verdict = found("draft-apart", evidence)
    assert verdict is not None
    assert verdict.severity is Severity.INFO
    assert degradations_of(diagnose(evidence)) == ()
    fixed = patched(apart.profile, verdict.fixes[0])
    assert fixed.speculation.draft is not None
    assert fixed.speculation.draft.device == "CUDA1"


def test_where_devices_share_every_layer_nothing_is_apart(large: Large) -> None:
    launch = large("qwen3_8b", "qwen3_06b_draft", speculation={"method": "draft"}, placement={"split_mode": "tensor"})
    assert found("draft-apart", as_planned(launch)) is None


@pytest.mark.parametrize(
    ("placement", "planned"),
    [({}, 0), ({"gpu_layers": 30}, 7), ({"gpu_layers": "auto", "fit": True, "tensor_split": [1, 1]}, 0)],
)
def test_layers_on_the_host(placement: dict[str, Any], planned: int, large: Large) -> None:
    launch = large("qwen3_8b", placement=placement, context={"size": 8192})
    assert found("layers-on-host", as_planned(launch)) is None
    placed = measured(launch)
    layers = {**placed.layers, "host": planned + 1}
    evidence = as_planned(launch, measured=replace(placed, layers=layers))
    verdict = found("layers-on-host", evidence)
    assert verdict is not None
    assert verdict.expected == f"{planned} layers on the host"
    assert "layers-on-host" in degradations_of(diagnose(evidence))
    if placement.get("fit"):
        fixed = patched(launch.profile, verdict.fixes[0]).placement
        assert (fixed.fit, fixed.gpu_layers) == (False, "all")
    else:
        assert list(verdict.fixes) == []


@pytest.mark.parametrize(("share", "is_found"), [(0.05, False), (0.2, True)])
def test_layers_that_are_not_told_are_seen_by_their_bytes(share: float, is_found: bool, drafted: Launch) -> None:
    evidence = as_planned(drafted, measured=moved(without_layers(drafted), "CUDA0", "host", ("weights",), share))
    assert (found("layers-on-host", evidence) is not None) is is_found


def test_a_launch_that_is_all_on_the_host_has_no_layer_too_many_there(large: Large) -> None:
    launch = large("qwen3_06b_draft", placement={"devices": ["none"], "gpu_layers": 0})
    assert found("layers-on-host", as_planned(launch, measured=replace(measured(launch), layers={"host": 99}))) is None


@pytest.mark.parametrize(("has", "is_found"), [(8192, False), (8448, False), (8191, True), (4096, True)])
def test_a_slot_with_less_than_asked(has: int, is_found: bool, drafted: Launch) -> None:
    evidence = as_planned(drafted, context_per_slot=has)
    verdict = found("context-smaller-than-asked", evidence)
    assert (verdict is not None) is is_found
    if verdict is not None:
        assert patched(drafted.profile, verdict.fixes[0]).context.size == has
        assert degradations_of(diagnose(evidence)) == ("context-smaller-than-asked",)


def test_what_slots_do_not_tell_the_output_may(drafted: Launch) -> None:
    placed = replace(measured(drafted), context_per_slot=4096)
    assert found("context-smaller-than-asked", as_planned(drafted, context_per_slot=None, measured=placed)) is not None
    assert found("context-smaller-than-asked", as_planned(drafted, context_per_slot=None, measured=None)) is None


def test_each_slot_counts(large: Large) -> None:
    launch = large("qwen3_8b", context={"size": 16_384, "slots": 4})
    assert found("context-smaller-than-asked", as_planned(launch)) is None
    verdict = found("context-smaller-than-asked", as_planned(launch, context_per_slot=2048))
    assert verdict is not None
    assert patched(launch.profile, verdict.fixes[0]).context.size == 8192


@pytest.mark.parametrize(
    ("has", "is_smaller", "is_shared"), [(16_384, False, True), (4096, False, False), (2048, True, False)]
)
def test_a_pool_that_slots_share(has: int, is_smaller: bool, is_shared: bool, large: Large) -> None:
    """A slot shows at most the trained length: where all together reach the whole pool nothing is missing."""
    launch = large("qwen3_8b", context={"size": 16_384, "slots": 4, "unified_kv": True})
    evidence = as_planned(launch, context_per_slot=has)
    assert (found("context-smaller-than-asked", evidence) is not None) is is_smaller
    verdict = found("slots-share-context", evidence)
    assert (verdict is not None) is is_shared
    if verdict is not None:
        assert degradations_of(diagnose(evidence)) == ()
        pool, own = (patched(launch.profile, fix).context for fix in verdict.fixes)
        assert (pool.size, pool.unified_kv) == (65_536, True)
        assert (own.size, own.unified_kv) == (65_536, False)


def test_a_pool_that_nobody_asked_for(large: Large) -> None:
    launch = large("qwen3_8b", context={"size": 16_384, "slots": 4})
    unified = replace(measured(launch), unified_kv=True)
    assert found("slots-share-context", as_planned(launch)) is None
    assert found("slots-share-context", as_planned(launch, measured=unified, context_per_slot=16_384)) is not None
    one = large("qwen3_8b", context={"size": 16_384, "unified_kv": True})
    assert found("slots-share-context", as_planned(one)) is None


def test_split_over_rows_counts_like_layers(large: Large) -> None:
    launch = large("qwen3_8b", on=cards(24, 24), placement={"split_mode": "row", "tensor_split": [1, 1]})
    assert found("layers-on-host", as_planned(launch)) is None
