"""Every query of every panel and every rule, answered by a real Prometheus that has scraped the real service."""

import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from deploy.dashboards import DASHBOARDS, QUERIES, PanelQuery, filled
from deploy.dockerfile import ROOT
from deploy.prometheus_server import Prometheus, running_prometheus
from fixtures.card_service import service_with_card
from fixtures.shapes import SHAPES, Shape
from fixtures.tiny_models import TinyModels
from service import Service, eventually, running_service, settings_for, short_folder

RULES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
DRAFT, NGRAM, BASELINE = (
    next(shape for shape in SHAPES if shape.id == name) for name in ("draft-wrong", "ngram-simple", "baseline")
)
WRONG = replace(DRAFT, patch={"speculation": {"draft_tokens_max": 3}})
SHAPES_USED: Final = (WRONG, NGRAM, BASELINE)
ABSENT: Final = "absent"
# The first completion of each life is an error.
FAILING: Final = {"error_status": {"status": 500, "body": {"error": {"message": "no"}}, "times": 1}}
# Empty where there is none, which is the same as no label.
OPTIONAL_LABELS: Final = {"profile", "reason"}
ROUNDS, REQUESTS_A_ROUND = 2, 2
REQUESTS: Final = ROUNDS * REQUESTS_A_ROUND
VARIABLES = {"profile": ".*", "device": ".*", "baseline": "baseline", "__rate_interval": "1m", "__range": "5m"}
# One request of 32 tokens with three draft tokens at most: 28 in 10 drafts, and where they were accepted.
DRAFTS, DRAFT_TOKENS, ACCEPTED, BY_POSITION = 10, 28, 21, (9, 8, 4)


@dataclass(frozen=True)
class Scene:
    """What was served, and who has seen it."""

    prometheus: Prometheus
    ngram_tokens: int
    evicted: str
    evicting: str
    planned_bytes: int


@pytest.fixture(scope="module")
def scene(tiny: TinyModels, nvml_library: Path) -> Iterator[Scene]:
    """Two services: one on the embedded engine, where drafts are counted exactly, and one on a simulated card.

    Each profile is used in two lives, so that what begins with its first use has grown since.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        (folder / "prometheus").mkdir()
        service = stack.enter_context(running_service(settings_for(folder, tiny.dense_target.parent)))
        card = stack.enter_context(service_with_card(tiny, nvml_library, yield_seconds=0.5))
        targets = [each.base_url.removeprefix("http://") for each in (service, card.service)]
        prometheus = stack.enter_context(running_prometheus(folder / "prometheus", targets, RULES))
        for shape in SHAPES_USED:
            service.add(shape.document(tiny))
        service.add({"id": ABSENT, "target": {"path": "absent.gguf"}})
        evicted, evicting = card.profiles(("card-one", "card-two"), 1.5, **{"card-one": {"scenario": FAILING}})
        for number in range(1, ROUNDS + 1):
            for shape in SHAPES_USED:
                _use(service, shape)
            assert service.client.post(f"/profiles/{ABSENT}/start").status_code == 409
            assert card.service.complete(evicted).status_code == 500
            assert card.service.complete(evicting).status_code == 200
            _wait_for_scrape(prometheus, service, number)
            evictions = f'paceline_residency_evictions_total{{profile="{evicted}"}}'
            eventually(lambda asked=evictions, most=number: prometheus.value(asked) == most or None)
        for shape in SHAPES_USED:
            service.start(shape.id)
        living = "count(paceline_instance_leases)"
        eventually(lambda: prometheus.value(living) == 4 or None)
        # A look at the card is taken each second, and the first of them has everything.
        looks = "count(paceline_device_pcie_sent_bytes_per_second)"
        eventually(lambda: prometheus.value(looks) == 1 or None)
        tokens = NGRAM.counts(NGRAM.document(tiny)).draft_n
        yield Scene(prometheus, tokens, evicted, evicting, card.needed_bytes(evicting))


def _use(service: Service, shape: Shape) -> None:
    """A life with one whole and one streamed answer; what it drafted is counted at its end."""
    service.start(shape.id)
    asked: dict[str, Any] = {"prompt": shape.prompt, "max_tokens": shape.tokens}
    assert service.complete(shape.id, **asked).status_code == 200
    service.stream(shape.id, **asked)
    service.stop(shape.id)


def _wait_for_scrape(prometheus: Prometheus, service: Service, number: int) -> None:
    for shape in SHAPES_USED:
        served = f'sum(paceline_requests_total{{profile="{shape.id}"}})'
        eventually(lambda asked=served: prometheus.value(asked) == number * REQUESTS_A_ROUND or None)


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
        (NGRAM, "ngram-simple", (None, scene.ngram_tokens, scene.ngram_tokens)),
    ):
        for name, count in zip(names, counts, strict=True):
            ((labels, value),) = scene.prometheus.query(f'paceline_spec_decode_{name}{{profile="{shape.id}"}}')
            assert labels["method"] == method
            assert count is None or value == REQUESTS * count
    positions = f'paceline_spec_decode_num_accepted_tokens_per_pos_total{{profile="{WRONG.id}"}}'
    found = {int(labels["position"]): value for labels, value in scene.prometheus.query(positions)}
    assert found == {position: REQUESTS * accepted for position, accepted in enumerate(BY_POSITION)}
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
    query = next(query for query in QUERIES if (query.dashboard, query.panel) == (dashboard, title))
    found = scene.prometheus.query(query.filled(VARIABLES))
    return {tuple(of.get(label, "") for label in labels): value for of, value in found}


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
