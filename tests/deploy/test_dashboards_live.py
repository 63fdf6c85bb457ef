"""Every query of every panel and every rule, answered by a real Prometheus that has scraped the real service."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from deploy.dashboards import DASHBOARDS, QUERIES, PanelQuery, filled
from deploy.prometheus_server import Prometheus
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
VARIABLES = {
    **{"profile": ".*", "device": ".*", "category": ".*", "baseline": "baseline"},
    **{"__rate_interval": "1m", "__range": "5m"},
}


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
            offered[variable["name"]] = _values_of(scene.prometheus, variable)
    plain = {BASELINE.id, ABSENT, scene.evicted, scene.evicting}
    assert offered.pop("category") >= TOKENS.keys()
    assert offered == {"profile": plain | {WRONG.id, NGRAM.id}, "baseline": plain, "device": {"CUDA0", "host"}}


def _values_of(prometheus: Prometheus, variable: dict[str, Any]) -> set[str]:
    query = filled(variable["query"], VARIABLES)
    if labelled := re.fullmatch(r"label_values\((.+), (\w+)\)", query):
        return set(prometheus.get(f"label/{labelled[2]}/values", **{"match[]": labelled[1]}))
    asked = re.fullmatch(r"query_result\((.+)\)", query)
    assert asked, query
    texts = ["{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" for labels, _ in prometheus.query(asked[1])]
    return {found[1] for text in texts if (found := re.search(variable["regex"].strip("/"), text))}


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
            assert count is None or value == ROUNDS * count
    positions = f'paceline_spec_decode_num_accepted_tokens_per_pos_total{{profile="{WRONG.id}"}}'
    found = {int(labels["position"]): value for labels, value in scene.prometheus.query(positions)}
    assert found == {position: ROUNDS * accepted for position, accepted in enumerate(BY_POSITION)}
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
    found = _panel(scene, "speculation", panel, "profile", "method")
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
            expected = {category: ROUNDS * counts[number] for category, counts in tokens.items()}
            assert {of["category"]: value for of, value in found} == expected
        rates = _panel(scene, "speculation", "Acceptance rate by category", "profile", "category")
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
        assert tokens == {category: ROUNDS * (of_category(shape, category).tokens - 1) for category in TOKENS}
        assert seconds == pytest.approx(scene.seconds[shape.id])


@pytest.mark.slow
def test_speed_by_category_is_told_against_the_same_category(scene: Scene) -> None:
    """One query for both sides: from one moment to the next Prometheus extrapolates otherwise."""
    panel = _query("speculation", "Speed against the baseline by category").filled(VARIABLES)

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
    found = _panel(scene, "speculation", "Speed against the baseline by category", "profile", "method", "category")
    # The other service served kinds of work that the baseline never had.
    assert {category for _, _, category in found} == TOKENS.keys()
    assert {(profile, method) for profile, method, _ in found} >= {(WRONG.id, "draft"), (BASELINE.id, "none")}


@pytest.mark.slow
def test_slots_and_limits_are_those_of_the_profiles(scene: Scene) -> None:
    slots = scene.prometheus.query("paceline_instance_slots")
    assert {of["profile"]: count for of, count in slots} == dict.fromkeys(
        (scene.evicting, *(shape.id for shape in SHAPES_USED)), 1
    )
    used = _panel(scene, "serving", "Slots in use", "profile")
    assert used == {(of["profile"],): 0 for of, _ in slots}
    queues = _panel(scene, "serving", "Queue in use", "profile")
    assert queues.keys() >= {(ABSENT,), (scene.evicted,), *used}
    assert set(queues.values()) == {0}


@pytest.mark.slow
def test_positions_of_drafts_are_exact(scene: Scene) -> None:
    """Of all drafts, and not of those that came so far."""
    found = _panel(scene, "speculation", "Accepted by position, since the service started", "profile", "position")
    of_wrong = {int(position): value for (profile, position), value in found.items() if profile == WRONG.id}
    assert of_wrong == pytest.approx({position: count / DRAFTS for position, count in enumerate(BY_POSITION)})
    assert found[NGRAM.id, "0"] == 1


@pytest.mark.slow
def test_the_baseline_is_as_fast_as_itself(scene: Scene) -> None:
    """And whoever was compared with it has a figure of their own."""
    found = _panel(scene, "speculation", "Speed against the baseline", "profile")
    assert found.keys() >= {(shape.id,) for shape in SHAPES_USED}
    assert found[BASELINE.id,] == pytest.approx(1)
    assert found[WRONG.id,] > 0


@pytest.mark.slow
def test_failures_and_evictions_are_of_whom_they_befell(scene: Scene) -> None:
    """Where nothing failed the share is 0, and not missing."""
    shares = _panel(scene, "serving", "Share that failed", "profile")
    assert shares == {(name,): float(name == scene.evicted) for (name,) in shares}
    assert shares.keys() >= {(shape.id,) for shape in SHAPES_USED}
    evictions = _panel(scene, "placement", "Evictions", "profile")
    # From the second round on each makes room for the other.
    assert {name for (name,), count in evictions.items() if count} == {scene.evicted, scene.evicting}
    exact = scene.prometheus.query("paceline_residency_evictions_total > 0")
    assert {of["profile"]: count for of, count in exact} == {scene.evicted: ROUNDS, scene.evicting: ROUNDS - 1}


@pytest.mark.slow
def test_planned_memory_is_that_of_the_plan(scene: Scene) -> None:
    """Of those that live, and of no others."""
    planned = _panel(scene, "placement", "Planned and measured", "profile", "device")
    assert planned[scene.evicting, "CUDA0"] == scene.planned_bytes
    assert {name for name, _ in planned} == {scene.evicting, *(shape.id for shape in SHAPES_USED)}


def _panel(scene: Scene, dashboard: str, title: str, *labels: str) -> dict[tuple[str, ...], float]:
    """What the first query of a panel shows, by these labels."""
    found = scene.prometheus.query(_query(dashboard, title).filled(VARIABLES))
    return {tuple(of.get(label, "") for label in labels): value for of, value in found}


def _query(dashboard: str, title: str) -> PanelQuery:
    return next(query for query in QUERIES if (query.dashboard, query.panel) == (dashboard, title))


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
