"""Every query of every panel and every rule, answered by a real Prometheus that has scraped the real service."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from deploy.dashboards import DASHBOARDS, GUIDE_QUERIES, QUERIES, VARIABLES, PanelQuery, panel_query
from deploy.prometheus_server import first_decile, offered_values
from deploy.served_scene import (
    ABSENT,
    ACCEPTED,
    BASELINE,
    BY_POSITION,
    DRAFT_TOKENS,
    DRAFTS,
    NGRAM,
    OF_CATEGORY,
    ROUNDS,
    RULES,
    SHAPES_USED,
    TIMES,
    TOKENS,
    WRONG,
    Scene,
    of_category,
    served_scene,
)
from fixtures.shapes import Shape
from fixtures.tiny_models import TinyModels
from service import eventually

# Empty where there is none, which is the same as no label.
OPTIONAL_LABELS: Final = {"profile", "reason"}


@pytest.fixture(scope="module")
def scene(tiny: TinyModels, nvml_library: Path) -> Iterator[Scene]:
    with served_scene(tiny, nvml_library) as served:
        yield served


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_panel_shows_data_with_the_labels_of_its_legend(scene: Scene, query: PanelQuery) -> None:
    """A query that parses and finds nothing is an empty panel, which nobody can tell from a quiet service."""
    found = scene.prometheus.query(query.filled(VARIABLES))
    assert any(math.isfinite(value) for _, value in found), found
    assert all(query.labels <= labels.keys() | OPTIONAL_LABELS for labels, _ in found), found
    assert any(query.labels <= labels.keys() for labels, _ in found), found


@pytest.mark.slow
def test_variables_have_values(scene: Scene) -> None:
    """What Grafana would offer, asked as it asks."""
    offered: dict[str, set[str]] = {}
    for dashboard in DASHBOARDS.values():
        for variable in dashboard["templating"]["list"]:
            offered[variable["name"]] = offered_values(scene.prometheus, variable)
    plain = {BASELINE.id, ABSENT, scene.evicted, scene.evicting}
    assert offered.pop("category") >= TOKENS.keys()
    assert offered == {"profile": plain | {WRONG.id, NGRAM.id}, "baseline": plain, "device": {"CUDA0", "host"}}


@pytest.mark.slow
def test_counters_of_drafts_are_exact(scene: Scene) -> None:
    """What the simulation of the tiny models says, after the way through engine, window, scrape and Prometheus."""
    names = ("num_drafts_total", "num_draft_tokens_total", "num_accepted_tokens_total")
    for shape, method, counts in (
        (WRONG, "draft", (DRAFTS, DRAFT_TOKENS, ACCEPTED)),
        (NGRAM, "ngram-simple", (None, *[sum(scene.ngram_tokens.values())] * 2)),
    ):
        for name, count in zip(names, counts, strict=True):
            ((labels, value),) = scene.prometheus.query(f'paceline_spec_decode_{name}{{profile="{shape.id}"}}')
            assert labels["method"] == method
            assert count is None or value == TIMES * count
    positions = f'paceline_spec_decode_num_accepted_tokens_per_pos_total{{profile="{WRONG.id}"}}'
    found = {int(labels["position"]): value for labels, value in scene.prometheus.query(positions)}
    assert found == {position: TIMES * accepted for position, accepted in enumerate(BY_POSITION)}
    baseline = f'{{__name__=~"paceline_spec_decode_.*", profile="{BASELINE.id}"}}'
    assert scene.prometheus.query(baseline) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("panel", "of_wrong", "of_ngram"),
    [
        ("Acceptance rate", ACCEPTED / DRAFT_TOKENS, 1),
        ("Mean acceptance length", 1 + ACCEPTED / DRAFTS, None),
        ("Tokens wasted", None, 0),
        ("Tokens wasted per second", None, 0),
    ],
)
def test_panels_of_speculation_are_exact(
    scene: Scene, panel: str, of_wrong: float | None, of_ngram: float | None
) -> None:
    """A ratio of the wrong series looks as good as one of the right ones."""
    found = scene.panel("speculation", panel, "profile", "method")
    assert found.keys() == {(WRONG.id, "draft"), (NGRAM.id, "ngram-simple")}
    for (_, value), expected in zip(sorted(found.items()), (of_wrong, of_ngram), strict=True):
        assert value == pytest.approx(expected) if expected is not None else value > 0


@pytest.mark.slow
def test_what_responses_told_is_exact_by_category(scene: Scene) -> None:
    """And is the same in sum as what the engines counted, since every response told."""
    for shape, method, tokens in (
        (WRONG, "draft", OF_CATEGORY),
        (NGRAM, "ngram-simple", {category: (count, count) for category, count in scene.ngram_tokens.items()}),
    ):
        labels = f'{{profile="{shape.id}", method="{method}"}}'
        for number, name in enumerate(("draft", "accepted")):
            found = scene.prometheus.query(f"paceline_request_{name}_tokens_total{labels}")
            expected = {category: TIMES * counts[number] for category, counts in tokens.items()}
            assert {of["category"]: value for of, value in found} == expected
        rates = scene.panel("speculation", "Acceptance rate by category", "profile", "category")
        for category, (drafted, accepted) in tokens.items():
            assert rates[shape.id, category] == pytest.approx(accepted / drafted)
    plain = f'{{__name__=~"paceline_request_(draft|accepted)_tokens_total", profile="{BASELINE.id}"}}'
    assert scene.prometheus.query(plain) == []


@pytest.mark.slow
def test_tokens_and_their_time_are_exact_by_category(scene: Scene) -> None:
    """The sums of what was recorded of each request; the first token is free."""
    for shape in SHAPES_USED:
        tokens, seconds = (
            {of["category"]: value for of, value in scene.prometheus.query(f'{series}{{profile="{shape.id}"}}')}
            for series in ("paceline_request_timed_tokens_total", "paceline_request_generation_seconds_total")
        )
        assert tokens == {category: TIMES * (of_category(shape, category).tokens - 1) for category in TOKENS}
        assert seconds == pytest.approx(scene.seconds[shape.id])


@pytest.mark.slow
def test_speed_by_category_is_told_against_the_same_category(scene: Scene) -> None:
    """One query for both sides: from one moment to the next Prometheus extrapolates otherwise."""
    panel = panel_query("speculation", "Speed against the baseline by category").filled(VARIABLES)

    def speed(shape: Shape, category: str) -> str:
        series = f'{{profile="{shape.id}", category="{category}"}}[5m]'
        tokens, seconds = (f"paceline_request_{name}_total" for name in ("timed_tokens", "generation_seconds"))
        return f"(sum(rate({tokens}{series})) / sum(rate({seconds}{series})))"

    for shape in SHAPES_USED:
        for category in TOKENS:
            series = f'paceline_request_timed_tokens_total{{profile="{shape.id}", category="{category}"}}'
            shown = f"sum({panel} and on (profile, category) {series})"
            asked = f"{shown} / ({speed(shape, category)} / {speed(BASELINE, category)})"
            assert scene.prometheus.value(asked) == pytest.approx(1)
    found = scene.panel("speculation", "Speed against the baseline by category", "profile", "method", "category")
    # The other service served kinds of work that the baseline never had.
    assert {category for _, _, category in found} == TOKENS.keys()
    assert {(profile, method) for profile, method, _ in found} >= {(WRONG.id, "draft"), (BASELINE.id, "none")}


@pytest.mark.slow
def test_slots_and_limits_are_those_of_the_profiles(scene: Scene) -> None:
    slots = scene.prometheus.query("paceline_instance_slots")
    assert {of["profile"]: count for of, count in slots} == dict.fromkeys(
        (scene.evicting, *(shape.id for shape in SHAPES_USED)), 1
    )
    used = scene.panel("serving", "Slots in use", "profile")
    assert used == {(of["profile"],): 0 for of, _ in slots}
    queues = scene.panel("serving", "Queue in use", "profile")
    assert queues.keys() >= {(ABSENT,), (scene.evicted,), *used}
    assert set(queues.values()) == {0}


@pytest.mark.slow
def test_what_speculation_gained_is_what_stats_say(scene: Scene) -> None:
    """The service reads it by itself, every few seconds in so small a database."""
    gained = {(name,): item["speedup"]["speedup"] for name, item in scene.stats.items() if item["speedup"]}
    assert gained.keys() == {(WRONG.id,), (NGRAM.id,)}
    eventually(lambda: scene.panel("speculation", "Gained in seven days", "profile") == pytest.approx(gained) or None)


@pytest.mark.slow
def test_whose_counters_somebody_else_reads_is_told(scene: Scene) -> None:
    assert scene.panel("speculation", "Not counted", "profile") == {(WRONG.id,): 0, (NGRAM.id,): 1}


@pytest.mark.slow
def test_positions_of_drafts_are_exact(scene: Scene) -> None:
    """Of all drafts, and not of those that came so far."""
    found = scene.panel("speculation", "Accepted by position, since the service started", "profile", "position")
    of_wrong = {int(position): value for (profile, position), value in found.items() if profile == WRONG.id}
    assert of_wrong == pytest.approx({position: count / DRAFTS for position, count in enumerate(BY_POSITION)})
    assert found[NGRAM.id, "0"] == 1


@pytest.mark.slow
def test_the_baseline_is_as_fast_as_itself(scene: Scene) -> None:
    """And whoever was compared with it has a figure of their own."""
    found = scene.panel("speculation", "Speed against the baseline", "profile")
    assert found.keys() >= {(shape.id,) for shape in SHAPES_USED}
    assert found[BASELINE.id,] == pytest.approx(1)
    assert found[WRONG.id,] > 0


@pytest.mark.slow
def test_failures_and_evictions_are_of_whom_they_befell(scene: Scene) -> None:
    """Where nothing failed the share is 0, and not missing."""
    shares = scene.panel("serving", "Share that failed", "profile")
    assert shares == {(name,): float(name == scene.evicted) for (name,) in shares}
    assert shares.keys() >= {(shape.id,) for shape in SHAPES_USED}
    evictions = scene.panel("placement", "Evictions", "profile")
    # From the second round on each makes room for the other.
    assert {name for (name,), count in evictions.items() if count} == {scene.evicted, scene.evicting}
    exact = scene.prometheus.query("paceline_residency_evictions_total > 0")
    assert {of["profile"]: count for of, count in exact} == {scene.evicted: ROUNDS, scene.evicting: ROUNDS - 1}


@pytest.mark.slow
def test_planned_memory_is_that_of_the_plan(scene: Scene) -> None:
    """Of those that live, and of no others; beside what was measured, of the same terms."""
    planned = scene.panel("placement", "Planned and measured", "profile", "device")
    assert planned[scene.evicting, "CUDA0"] == scene.planned_bytes
    assert {name for name, _ in planned} == {scene.evicting, *(shape.id for shape in SHAPES_USED)}
    predicted = f'paceline_instance_memory_bytes{{profile="{WRONG.id}", source="predicted"}}'
    told = f'{predicted} and ignoring (source) paceline_instance_memory_bytes{{source="measured"}}'
    told_bytes, all_bytes = (scene.prometheus.value(f"sum({series})") for series in (told, predicted))
    assert planned[WRONG.id, "host"] == told_bytes
    assert 0 < (told_bytes or 0) < (all_bytes or 0)


@pytest.mark.slow
def test_worst_windows_are_those_of_the_histogram(scene: Scene) -> None:
    """One window a life, unless a reading falls into it: by hand, from its buckets."""
    found = scene.panel("speculation", "Acceptance rate of the worst windows", "profile")
    buckets = f'paceline_spec_decode_acceptance_ratio_bucket{{profile="{WRONG.id}"}}'
    counts = {float(of["le"]): value for of, value in scene.prometheus.query(buckets)}
    assert counts[math.inf] >= ROUNDS
    assert found[WRONG.id,] == pytest.approx(first_decile(counts))
    assert min(7 / 11, ACCEPTED / DRAFT_TOKENS) - 0.1 <= found[WRONG.id,] <= 0.8
    assert found[NGRAM.id,] == max(bound for bound in counts if bound < math.inf)


@pytest.mark.slow
def test_positions_over_time_fall_as_those_of_the_engine(scene: Scene) -> None:
    """Their first counts are in no growth, those of drafts may be: exact is how they stand to each other."""
    found = scene.panel("speculation", "Accepted by position", "profile", "position")
    of_wrong = {int(position): value for (profile, position), value in found.items() if profile == WRONG.id}
    first = of_wrong[0] / BY_POSITION[0]
    assert of_wrong == pytest.approx({position: count * first for position, count in enumerate(BY_POSITION)})
    assert of_wrong[0] > 0


@pytest.mark.slow
def test_lengths_are_what_stats_say(scene: Scene) -> None:
    """Of the n-gram profile only its engine knows how many drafts there were."""
    found = scene.panel("speculation", "Mean acceptance length", "profile")
    told = {name: item["engine_acceptance"] for name, item in scene.stats.items() if item["engine_acceptance"]}
    assert found == {(name,): pytest.approx(counts["mean_acceptance_length"]) for name, counts in told.items()}
    assert found.keys() == {(WRONG.id,), (NGRAM.id,)}


@pytest.mark.slow
@pytest.mark.parametrize("query", GUIDE_QUERIES)
def test_a_query_of_the_guide_has_values_and_none_that_is_no_number(scene: Scene, query: str) -> None:
    found = scene.prometheus.query(query)
    assert all(math.isfinite(value) for _, value in found), found
    # Those look for what is wrong, and find nothing.
    assert found or query.endswith(("> 2", "== 1"))


@pytest.mark.slow
def test_queries_of_the_guide_are_exact(scene: Scene) -> None:
    def values(part: str) -> dict[str, float]:
        (query,) = [query for query in GUIDE_QUERIES if part in query]
        return {of["profile"]: value for of, value in scene.prometheus.query(query)}

    accepted = values("rate(paceline_spec_decode_num_draft_tokens_total")
    assert accepted == {WRONG.id: pytest.approx(ACCEPTED / DRAFT_TOKENS), NGRAM.id: 1}
    assert values("_num_drafts_total")[WRONG.id] == pytest.approx(1 + ACCEPTED / DRAFTS)
    failed = values("upstream_")
    assert failed == {name: float(name == scene.evicted) for name in failed}
    assert failed.keys() >= {scene.evicted, *(shape.id for shape in SHAPES_USED)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]],
    ids=lambda rule: rule.get("record") or rule["alert"],
)
def test_a_rule_is_evaluated(scene: Scene, rule: dict[str, Any]) -> None:
    """What is recorded has data. Alerts may find nothing, since nothing is wrong, but not fail."""
    name = rule.get("record") or rule["alert"]

    def evaluated() -> dict[str, Any] | None:
        found = next(each for each in scene.prometheus.rules() if each["name"] == name)
        return found if found["health"] != "unknown" else None

    told = eventually(evaluated)
    assert (told["health"], told.get("lastError")) == ("ok", None)
    if "record" in rule:
        assert eventually(lambda: scene.prometheus.query(name) or None)
