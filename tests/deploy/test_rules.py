"""Recording rules and alerts: right by Prometheus' own tool, and of series, values and sections that there are."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures.programs import needed_program

from app.instances.diagnosis import DEGRADATIONS
from app.instances.diagnosis.memory import TOLERANCE_BYTES, TOLERANCE_SHARE
from app.instances.diagnosis.speculation import COLLAPSED_RATE, NGRAM_DRAFT_TOKENS_LEAST
from app.instances.facts import RestartCause
from app.instances.state import InstanceState
from app.metrics.catalogue import families, labels_of
from app.metrics.exposition import name_of
from app.proxy.categories import Category
from app.proxy.observer import Outcome

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "deploy" / "prometheus"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
RULE_FILES = sorted((FOLDER / "rules").glob("*.yml"))
TEST_FILES = sorted((FOLDER / "tests").glob("*.yml"))
# What Prometheus itself adds.
TARGET_LABELS = {"job", "instance", "le"}
CLOSED = {
    "degradation": DEGRADATIONS,
    "state": set(InstanceState),
    "cause": set(RestartCause),
    "outcome": set(Outcome),
    "source": {"predicted", "measured"},
    "result": {"ready", "refused", "not-begun", "failed"},
    "category": set(Category),
}


def rules() -> Iterator[dict[str, Any]]:
    for path in RULE_FILES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in rules() if "record" in rule}
EXPRESSIONS = {name: rule["expr"] for name, rule in {**ALERTS, **RECORDS}.items()}


def shown_cases() -> Iterator[dict[str, Any]]:
    for path in TEST_FILES:
        yield from yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]


def series() -> Mapping[str, set[str]]:
    """The labels of every series that the service gives, by its name in a query."""
    known: dict[str, set[str]] = {"up": set()}
    for family in families():
        name, labels = name_of(family), set(labels_of(family))
        parts = ("_bucket", "_count", "_sum") if family.type == "histogram" else ("",)
        known |= {name + part: labels for part in parts}
    return known


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The series that an expression names, with the values that it asks of their labels."""
    for name, matchers in re.findall(r"\b(paceline_[a-z_]+|up)\b(?:\{([^}]*)\})?", expression):
        yield name, dict(re.findall(r'(\w+)\s*(?:!=|=~|!~|=)\s*"([^"]*)"', matchers))


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        [needed_program("promtool", "prometheus"), *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_finds_the_rules_and_both_are_valid(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "prometheus")
    config = tmp_path / "prometheus" / "prometheus.yml"
    text = config.read_text(encoding="utf-8")
    # Of a volume, which is not here.
    key = str(yaml.safe_load(text)["scrape_configs"][0]["authorization"]["credentials_file"])
    (tmp_path / "metrics.key").write_text("secret", encoding="utf-8")
    config.write_text(text.replace(key, str(tmp_path / "metrics.key")), encoding="utf-8")
    told = promtool("check", "config", "--lint=all", "--lint-fatal", config)
    assert f"SUCCESS: {len(RULE_FILES)} rule files found" in told
    told = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)
    assert sum(int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", told)) == len(EXPRESSIONS)


def test_the_jobs_name_is_the_one_that_alerts_ask_for() -> None:
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    asked = {values["job"] for text in EXPRESSIONS.values() for _, values in selectors(text) if "job" in values}
    assert asked == {job["job_name"] for job in jobs}


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: str(path.stem))
def test_rules_answer_as_they_should(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", path)


def test_every_alert_is_shown_to_fire_and_not_to_and_every_record_to_be_exact() -> None:
    cases = [case for each in shown_cases() for case in each.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(ALERTS)
    # A misspelled alert is silent as well.
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == set(ALERTS)
    asked = [case["expr"] for each in shown_cases() for case in each.get("promql_expr_test", ())]
    assert {name for name in RECORDS if any(name in expression for expression in asked)} == set(RECORDS)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_rule_asks_for_series_labels_and_values_that_there_are(name: str) -> None:
    known, expression = series(), EXPRESSIONS[name]
    asked = list(selectors(expression))
    recorded = set(re.findall(r"\bpaceline:[a-z0-9_:]+", expression))
    assert asked or recorded
    assert recorded <= set(RECORDS)
    for metric, values in asked:
        assert metric in known
        assert set(values) <= known[metric] | TARGET_LABELS, metric
        for label, value in values.items():
            if label in CLOSED:
                assert set(value.split("|")) <= CLOSED[label]
    labels = {label for metric in known for label in known[metric]} | TARGET_LABELS
    for listed in re.findall(r"\b(?:by|without|on|ignoring|group_left)\s*\(([^)]*)\)", expression):
        assert set(filter(None, re.split(r",\s*", listed))) <= labels


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_looks_over_the_time_of_its_name(name: str) -> None:
    told = re.findall(r"rate(\d+m)$", name)
    assert sorted(set(re.findall(r"\[(\w+)\]", EXPRESSIONS[name]))) == told


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: str(path.stem))
def test_shown_cases_give_series_as_the_service_does(path: Path) -> None:
    known = series()
    for each in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
        for given in each["input_series"]:
            ((metric, values),) = selectors(given["series"])
            bound = {"le"} if metric.endswith("_bucket") else set()
            assert set(values) == known[metric] | {"job", "instance"} | bound, given["series"]
            assert all(values[label] in CLOSED[label] for label in values.keys() & CLOSED.keys()), given["series"]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_responses_told_and_what_engines_counted_are_never_in_one_rule(name: str) -> None:
    named = {metric for metric, _ in selectors(EXPRESSIONS[name])}
    prefixes = ("paceline_request_", "paceline_spec_decode_")
    assert len({prefix for prefix in prefixes for metric in named if metric.startswith(prefix)}) <= 1


def test_figures_are_those_of_the_diagnosis_and_of_the_limits() -> None:
    memory, queue = EXPRESSIONS["PacelineDeviceMemoryOverPlan"], EXPRESSIONS["PacelineQueueSaturated"]
    assert f"> {TOLERANCE_BYTES}\n" in memory
    assert f"> {TOLERANCE_SHARE:g} *" in memory
    collapsed = EXPRESSIONS["PacelineAcceptanceCollapsed"]
    assert f">= {NGRAM_DRAFT_TOKENS_LEAST})" in collapsed
    assert f") < {COLLAPSED_RATE:g}\n" in collapsed
    # The shares of a profile's limit and of that of all, which are series: no default is in the rule.
    assert re.findall(r">= (\S+) \* .*\((\w+) > 0\)", queue) == [
        ("0.75", "paceline_instance_queue_limit"),
        ("0.75", "paceline_queue_limit"),
    ]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_means_and_where_help_is(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
    body = OPERATIONS.split(f"\n### {name}\n")[1].split("\n#")[0]
    for word in ("means", "Look at", "helps"):
        assert word in body, word


def test_the_page_tells_of_no_alert_that_is_gone() -> None:
    chapter = OPERATIONS.split("\n## Alerts\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (.+)$", chapter, re.MULTILINE) == list(ALERTS)
