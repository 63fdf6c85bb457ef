"""What Grafana would refuse, or show badly, as far as that can be told without one: its own models, and its rules."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import pytest
import yaml
from deploy.dashboards import DASHBOARDS, QUERIES, PanelQuery
from deploy.dockerfile import ROOT
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard, VariableHide

COLUMNS: Final = 24
BUILT_IN: Final = {"__rate_interval", "__range"}
UNITS: Final = {value for name, value in vars(units).items() if name[0].isupper()}
COLOURS: Final = {"green", "yellow", "orange", "red", "blue", "purple"}
KINDS: Final = {"timeseries", "stat", "bargauge"}
NAMES: Final = sorted(DASHBOARDS)
PANELS: Final = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name in NAMES
    for panel in DASHBOARDS[name]["panels"]
    if panel["type"] != "row"
]


def used_variables(text: str) -> set[str]:
    return {plain or braced for plain, braced in re.findall(r"\$(?:(\w+)|\{(\w+)[:}])", text)}


@pytest.mark.parametrize("name", NAMES)
def test_grafanas_own_models_read_it_and_write_the_same(name: str) -> None:
    """A member that they do not know would be lost."""
    board = Dashboard.from_json(DASHBOARDS[name])
    assert json.loads(JSONEncoder().encode(board)) == DASHBOARDS[name]
    assert board.schema_version >= 36
    assert board.id_val is None  # a number would be that of another dashboard, somewhere


def test_dashboards_can_be_told_apart_and_lead_to_each_other() -> None:
    for member in ("uid", "title"):
        assert len({board[member] for board in DASHBOARDS.values()}) == len(DASHBOARDS)
    for board in DASHBOARDS.values():
        assert re.fullmatch(r"[a-z0-9-]{1,40}", board["uid"])
        (link,) = board["links"]
        assert set(link["tags"]) <= set(board["tags"])


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_beside_each_other_and_within_the_width(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARDS[name]["panels"]:
        place = panel["gridPos"]
        left, top, width, height = (place[side] for side in ("x", "y", "w", "h"))
        assert left >= 0
        assert top >= 0
        assert left + width <= COLUMNS, panel["title"]
        # Below that a legend and its figures have no room.
        assert (width, height) == (COLUMNS, 1) if panel["type"] == "row" else width >= 4 and height >= 4
        for cell in ((x, y) for x in range(left, left + width) for y in range(top, top + height)):
            assert cell not in taken, f"{panel['title']} lies on {taken.get(cell)}"
            taken[cell] = panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_panels_have_no_gaps(name: str) -> None:
    """Whoever reads from left to right finds each line full, but for the last of a row."""
    panels = DASHBOARDS[name]["panels"]
    lines = sorted({panel["gridPos"]["y"] for panel in panels})
    widths = {top: sum(panel["gridPos"]["w"] for panel in panels if panel["gridPos"]["y"] == top) for top in lines}
    rows = {panel["gridPos"]["y"] for panel in panels if panel["type"] == "row"}
    for top, following in pairwise(lines):
        assert widths[top] == COLUMNS or following in rows, top


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_is_of_a_kind_and_a_unit_that_grafana_has(panel: Mapping[str, Any]) -> None:
    assert panel["type"] in KINDS
    unit = panel["fieldConfig"]["defaults"]["unit"]
    # Any text may follow a number; the blank before it belongs to it.
    assert unit in UNITS or re.fullmatch(r"suffix: \S+", unit), unit
    assert panel["description"].endswith(".")


@pytest.mark.parametrize("panel", PANELS)
def test_colours_change_at_values_that_rise(panel: Mapping[str, Any]) -> None:
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    assert {step["color"] for step in steps} <= COLOURS
    if panel["type"] in ("stat", "bargauge"):
        first, *others = [step["value"] for step in steps]
        assert first is None  # the colour of what is below the others
        assert others == sorted(set(others))
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults.get("min", 0) < defaults.get("max", 1)


@pytest.mark.parametrize("panel", PANELS)
def test_queries_of_a_panel_can_be_told_apart(panel: Mapping[str, Any]) -> None:
    """By their letters, and by what their lines are called: two of the same name look like one."""
    targets = panel["targets"]
    for member in ("refId", "expr", "legendFormat"):
        assert len({target[member] for target in targets}) == len(targets)
    assert all(target["legendFormat"] for target in targets)
    # One number of now, or lines over time.
    is_now = panel["type"] != "timeseries"
    assert all((target["instant"], target["range"]) == (is_now, not is_now) for target in targets)
    if is_now:
        assert not any("$__rate_interval" in target["expr"] for target in targets)


@pytest.mark.parametrize("name", NAMES)
def test_variables_that_are_used_are_there_and_those_that_are_there_are_used(name: str) -> None:
    board = DASHBOARDS[name]
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert len(variables) == len(board["templating"]["list"])
    used = {found for panel in board["panels"] for text in _texts(panel) for found in used_variables(text)}
    used |= {panel["repeat"] for panel in board["panels"] if panel.get("repeat")}
    assert used - BUILT_IN == variables.keys()
    for variable in variables.values():
        assert variable["label"]
        assert variable.get("hide", VariableHide.DONT_HIDE.value) == VariableHide.DONT_HIDE.value
        # One that takes several values is a regular expression in every query, and offers all.
        assert variable["multi"] is variable["includeAll"] is (variable.get("allValue") == ".*")


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_variable_is_matched_as_what_it_is(query: PanelQuery) -> None:
    variables = {each["name"]: each for each in DASHBOARDS[query.dashboard]["templating"]["list"]}
    for operator, name in re.findall(r'(=~|!=|!~|=)"\$(\w+)"', query.expression):
        assert operator == ("=~" if variables[name]["multi"] else "=")
    asked = [name for name in used_variables(query.expression) if name not in BUILT_IN]
    assert all(f'"${name}"' in query.expression for name in asked)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_what_responses_told_and_what_engines_counted_are_never_in_one_query(query: PanelQuery) -> None:
    prefixes = ("paceline_request_", "paceline_spec_decode_")
    assert sum(prefix in query.expression for prefix in prefixes) <= 1


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_legend_names_labels_that_the_query_keeps(query: PanelQuery) -> None:
    """The live test asks the returned series as well."""
    kept = {label for listed in re.findall(r"\bby \(([^)]*)\)", query.expression) for label in listed.split(", ")}
    assert query.labels <= kept
    assert not re.search(r"[{}]", re.sub(r"{{\w+}}", "", query.legend))


def test_graphs_look_as_far_back_as_prometheus_scrapes() -> None:
    """Else $__rate_interval would be shorter than four scrapes, and graphs have gaps."""
    sources = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert [source["jsonData"]["timeInterval"] for source in sources["datasources"]] == [scraped]


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for each in node.values() if isinstance(node, dict) else node:
            yield from _texts(each)
