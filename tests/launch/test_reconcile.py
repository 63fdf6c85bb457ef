"""The engine's figures against a plan's, on witnesses that are written down here."""

from collections.abc import Mapping

import pytest

from app.findings import Severity
from app.launch.reconcile import reconcile
from app.launch.witness import Witness
from app.llama_server.breakdown import Breakdown, Figures

MIB = 1 << 20


def figures(model: int = 0, context: int = 0, compute: int = 0) -> Figures:
    return Figures(model * MIB, context * MIB, compute * MIB)


def plan(**terms: float) -> dict[str, int]:
    return {term: int(value * MIB) for term, value in terms.items()}


def target(host: Figures = Figures(), **devices: Figures) -> Breakdown:  # noqa: B008 - a value
    return Breakdown(devices, host)


def terms(table: Mapping[str, Mapping[str, int]], device: str = "CUDA0") -> dict[str, float]:
    return {term: value / MIB for term, value in table[device].items()}


def test_a_plan_inside_the_printed_mib_keeps_its_bytes() -> None:
    ours = {"CUDA0": plan(weights=100.75, kv_cache=32, compute=10.5)}
    merged = reconcile(ours, Witness(target(CUDA0=figures(100, 32, 10))))
    assert merged.table == ours
    assert merged.findings == []


def test_the_engine_s_figures_take_the_place_of_the_plan_s() -> None:
    ours = {"CUDA0": plan(weights=100, kv_cache=32, compute=200, overhead=300), "Host": plan(weights=5, host_caches=7)}
    merged = reconcile(ours, Witness(target(figures(4, 0, 1), CUDA0=figures(150, 64, 100))))
    assert terms(merged.table) == {"weights": 150, "kv_cache": 64, "compute": 101, "overhead": 300}
    assert terms(merged.table, "Host") == {"weights": 5, "host_caches": 7, "compute": 1}
    assert [finding.rule for finding in merged.findings] == ["plan-disagrees"] * 3
    assert {finding.severity for finding in merged.findings} == {Severity.WARNING}
    weights = merged.findings[0]
    assert (weights.expected, weights.observed) == ("100 MiB", "150 MiB")
    assert "CUDA0" in weights.message
    assert "weights" in weights.message


@pytest.mark.parametrize(
    ("planned", "said", "disagrees"),
    [(102, 100, False), (103, 100, False), (103.5, 100, True), (98, 100, False), (97.9, 100, True)],
)
@pytest.mark.parametrize("term", ["weights", "kv_cache"])
def test_weights_and_context_may_differ_by_two_mib(term: str, planned: float, said: int, disagrees: bool) -> None:
    seen = figures(model=said) if term == "weights" else figures(context=said)
    merged = reconcile({"CUDA0": plan(**{term: planned})}, Witness(target(CUDA0=seen)))
    assert bool(merged.findings) is disagrees


@pytest.mark.parametrize(
    ("planned", "said", "disagrees"),
    [(68, 100, False), (67, 100, True), (133, 100, False), (134, 100, True), (900, 1000, False), (899, 1000, True)],
)
def test_compute_may_differ_by_32_mib_or_a_tenth(planned: float, said: int, disagrees: bool) -> None:
    merged = reconcile({"CUDA0": plan(compute=planned)}, Witness(target(CUDA0=figures(compute=said))))
    assert bool(merged.findings) is disagrees


def test_recurrent_state_and_cache_share_the_context() -> None:
    ours = {"CUDA0": plan(kv_cache=10, recurrent_state=4)}
    merged = reconcile(ours, Witness(target(CUDA0=figures(context=20))))
    assert terms(merged.table) == {"kv_cache": 16, "recurrent_state": 4}
    less = reconcile(ours, Witness(target(CUDA0=figures(context=2))))
    assert terms(less.table) == {"kv_cache": 0, "recurrent_state": 3}


def test_a_device_that_the_plan_left_out() -> None:
    merged = reconcile({}, Witness(target(), draft=target(CUDA1=figures(604, 3584, 58))))
    assert terms(merged.table, "CUDA1") == {"draft_weights": 604, "draft_kv_cache": 3584, "draft_compute": 58}
    assert len(merged.findings) == 3


def test_a_device_that_the_engine_does_not_use() -> None:
    merged = reconcile({"CUDA1": plan(weights=500)}, Witness(target(CUDA0=figures(model=500))))
    assert terms(merged.table, "CUDA1") == {"weights": 1}
    assert {found.observed for found in merged.findings} == {"0 MiB", "500 MiB"}


def test_weights_that_the_headers_prove_are_not_told_away() -> None:
    """An empty or broken breakdown is no witness: the files are there."""
    planned = {"CUDA0": plan(weights=500), "CUDA1": plan(weights=500)}
    for said in (target(), target(CUDA0=figures(model=1), CUDA1=figures(model=1)), target(CUDA9=figures(model=3))):
        merged = reconcile(planned, Witness(said))
        assert terms(merged.table, "CUDA0")["weights"] >= 500
        assert terms(merged.table, "CUDA1")["weights"] >= 500
        assert "plan-disagrees" in [found.rule for found in merged.findings]


def test_an_mtp_context_brings_no_weights() -> None:
    mtp = target(CUDA0=figures(1000, 128, 308))
    ours = {"CUDA0": plan(weights=900, draft_weights=100, draft_kv_cache=128, draft_compute=300)}
    merged = reconcile(ours, Witness(target(CUDA0=figures(1000)), mtp=mtp))
    assert merged.findings == []
    assert terms(merged.table) == {"weights": 900, "draft_weights": 100, "draft_kv_cache": 128, "draft_compute": 308}


def test_where_the_engine_is_blind_the_plan_stays() -> None:
    blind = frozenset({"draft_weights", "draft_kv_cache", "draft_compute", "compute"})
    ours = {"CUDA0": plan(compute=150, draft_weights=40, draft_kv_cache=8, draft_compute=128)}
    merged = reconcile(ours, Witness(target(CUDA0=figures(compute=100)), blind=blind))
    assert merged.table == ours
    assert merged.findings == []


def test_what_is_seen_by_half_is_the_least() -> None:
    witness = Witness(target(), draft=target(CUDA0=figures(compute=64)), blind=frozenset({"draft_compute"}))
    assert terms(reconcile({"CUDA0": plan(draft_compute=128.25)}, witness).table) == {"draft_compute": 128.25}
    short = reconcile({"CUDA0": plan(draft_compute=20)}, witness)
    assert terms(short.table) == {"draft_compute": 64}
    assert [finding.rule for finding in short.findings] == ["plan-disagrees"]


def test_what_the_dry_run_counts_too_much_is_taken_off() -> None:
    witness = Witness(target(CUDA0=figures(compute=552), CUDA1=figures(compute=472)))
    ours = {"CUDA0": plan(compute=552), "CUDA1": plan(compute=408)}
    excess = {"CUDA1": 64 * MIB}
    merged = reconcile(ours, witness, excess_compute_bytes=excess)
    assert merged.table == ours
    assert merged.findings == []
    assert len(reconcile(ours, witness).findings) == 1


def test_the_plan_is_left_as_it_was() -> None:
    ours = {"CUDA0": plan(weights=1)}
    reconcile(ours, Witness(target(CUDA0=figures(50))))
    assert ours == {"CUDA0": plan(weights=1)}
