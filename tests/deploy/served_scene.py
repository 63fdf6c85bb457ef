"""What the live test of the dashboards looks at: two services that have served, and the Prometheus that saw it."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from deploy.dashboards import VARIABLES, panel_query
from deploy.dockerfile import ROOT
from deploy.prometheus_server import Prometheus, running_prometheus
from fixtures.card_service import service_with_card
from fixtures.shapes import SHAPES, Shape
from fixtures.tiny_models import TinyModels
from service import Service, completion, eventually, running_service, settings_for, short_folder

RULES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
DRAFT, NGRAM, BASELINE = (
    next(shape for shape in SHAPES if shape.id == name) for name in ("draft-wrong", "ngram-simple", "baseline")
)
WRONG = replace(DRAFT, patch={"speculation": {"draft_tokens_max": 3}})
SHAPES_USED: Final = (WRONG, NGRAM, BASELINE)
ABSENT: Final = "absent"
# The first completion of each life is an error.
FAILING: Final = {"error_status": {"status": 500, "body": {"error": {"message": "no"}}, "times": 1}}
GAINED: Final = "paceline_speculation_speedup_ratio"
ROUNDS, REQUESTS_A_ROUND = 2, 3
# Of each category, of as many tokens; None stands for those of the shape. Fewer than five say nothing of a speed-up.
WHOLE, STREAMED = "code", "math_reasoning"
TOKENS: Final = {WHOLE: None, STREAMED: 12}
TIMES: Final = ROUNDS * REQUESTS_A_ROUND
# Of 32 tokens with three draft tokens at most: 28 in 10 drafts, and where they were accepted; of 12: 11 in 4.
DRAFTS, DRAFT_TOKENS, ACCEPTED, BY_POSITION = 10 + 4, 28 + 11, 21 + 7, (9 + 3, 8 + 3, 4 + 1)
OF_CATEGORY: Final = {WHOLE: (28, 21), STREAMED: (11, 7)}


@dataclass(frozen=True)
class Scene:
    """What was served, and who has seen it.

    `stats` are the items of /stats by profile; `ngram_tokens` are those of one request by category, `seconds` the
    recorded ones of a profile by category.
    """

    prometheus: Prometheus
    stats: Mapping[str, Mapping[str, Any]]
    ngram_tokens: Mapping[str, int]
    seconds: Mapping[str, Mapping[str, float]]
    evicted: str
    evicting: str
    planned_bytes: int

    def panel(self, dashboard: str, title: str, *labels: str) -> dict[tuple[str, ...], float]:
        """What the first query of a panel shows, by these labels."""
        found = self.prometheus.query(panel_query(dashboard, title).filled(VARIABLES))
        return {tuple(of.get(label, "") for label in labels): value for of, value in found}


@contextmanager
def served_scene(tiny: TinyModels, nvml_library: Path) -> Iterator[Scene]:
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
        # As somebody else's Prometheus would.
        assert service.client.get(f"/upstream/{NGRAM.id}/metrics").status_code == 200
        eventually(lambda: prometheus.value("sum(paceline_spec_decode_paused)") == 1)
        living = "count(paceline_instance_leases)"
        eventually(lambda: prometheus.value(living) == 4 or None)
        # A look at the card is taken each second, and the first of them has everything.
        looks = "count(paceline_device_pcie_sent_bytes_per_second)"
        eventually(lambda: prometheus.value(looks) == 1 or None)
        tokens = {category: of_category(NGRAM, category).counts(NGRAM.document(tiny)).draft_n for category in TOKENS}
        seconds = {shape.id: _recorded_seconds(service, shape) for shape in SHAPES_USED}
        gained = f"count({GAINED}) == 2"
        eventually(lambda: prometheus.value(gained))
        stats = {item["profile"]: item for item in service.client.get("/stats").json()["items"]}
        yield Scene(prometheus, stats, tokens, seconds, evicted, evicting, card.needed_bytes(evicting))


def _use(service: Service, shape: Shape) -> None:
    """A life with whole and streamed answers; what it drafted is counted at its end."""
    service.start(shape.id)
    for category in [*TOKENS] * REQUESTS_A_ROUND:
        tokens = of_category(shape, category).tokens
        asked = completion(shape.id, shape.prompt, max_tokens=tokens, stream=category == STREAMED)
        answer = service.client.post("/v1/completions", json=asked, headers={"X-Paceline-Category": category})
        assert answer.status_code == 200, answer.text
    service.stop(shape.id)


def of_category(shape: Shape, category: str) -> Shape:
    """The shape as it is asked for work of this category."""
    return replace(shape, tokens=TOKENS[category] or shape.tokens)


def _recorded_seconds(service: Service, shape: Shape) -> dict[str, float]:
    """The generation seconds of all its requests by category, from their rows."""

    def all_rows() -> list[dict[str, Any]] | None:
        items = service.client.get("/requests", params={"profile": shape.id}).json()["items"]
        rows = [row for row in items if row["category"] in TOKENS]
        return rows if len(rows) == TIMES * len(TOKENS) else None

    rows = eventually(all_rows)
    return {
        category: sum(row["generation_seconds"] for row in rows if row["category"] == category) for category in TOKENS
    }


def _wait_for_scrape(prometheus: Prometheus, service: Service, number: int) -> None:
    for shape in SHAPES_USED:
        served = f'sum(paceline_requests_total{{profile="{shape.id}"}})'
        eventually(lambda asked=served: prometheus.value(asked) == number * REQUESTS_A_ROUND * len(TOKENS) or None)
