"""The dashboards that Grafana is provisioned with: as their source has them, and of series that exist."""

import json
import re
from typing import Any

import pytest
import yaml
from deploy.dashboards import DASHBOARDS, FOLDER, QUERIES, PanelQuery
from deploy.dockerfile import ROOT

from app.metrics.catalogue import families, labels_of
from app.metrics.exposition import name_of
from deploy.grafana.source import dashboards
from deploy.grafana.source.page import page


@pytest.mark.parametrize("name", sorted({*dashboards(), *(path.name for path in FOLDER.glob("*.json"))}))
def test_the_json_is_what_the_source_writes(name: str) -> None:
    """`python -m deploy.grafana.source` writes it anew."""
    assert (FOLDER / name).read_text(encoding="utf-8") == dashboards().get(name)


def test_the_page_that_draws_them_is_up_to_date_and_has_every_panel() -> None:
    """`make dashboards` writes it, too."""
    written = (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")
    assert written == page(dashboards())
    for query in QUERIES:
        assert f"**{query.panel}.**" in written
        assert f"- `{query.legend}`: `{query.expression}`" in written


def test_panels_are_drawn_where_they_lie() -> None:
    """Every line is as wide as the screen, or as what is in it, with a heading where Grafana has one."""
    drawings = page(dashboards()).split("```text\n")[1:]
    assert len(drawings) == len(DASHBOARDS)
    for board, drawing in zip((json.loads(text) for text in dashboards().values()), drawings, strict=True):
        lines = drawing.split("```")[0].splitlines()
        assert max(map(len, lines)) == 24 * 4
        tops = [line.count("┌") for line in lines if "┌" in line]
        heights = sorted({panel["gridPos"]["y"] for panel in board["panels"] if panel["type"] != "row"})
        assert tops == [sum(panel["gridPos"]["y"] == top for panel in board["panels"]) for top in heights]
        headings = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
        assert [line for line in lines if line[0] not in "┌│└"] == headings


def test_everything_asks_the_source_that_is_provisioned() -> None:
    provisioned = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    (source,) = provisioned["datasources"]
    expected = {"type": source["type"], "uid": source["uid"]}
    asked = [found for dashboard in DASHBOARDS.values() for found in _values(dashboard, "datasource")]
    assert len(asked) > len(QUERIES)
    assert all(found == expected for found in asked)


def _values(node: Any, key: str) -> list[Any]:
    """What stands under this key, wherever it is."""
    if isinstance(node, list):
        return [found for each in node for found in _values(each, key)]
    if not isinstance(node, dict):
        return []
    return [*([node[key]] if key in node else []), *(found for each in node.values() for found in _values(each, key))]


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_panels_can_be_told_apart_and_say_what_they_show(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    shown = [panel for panel in panels if panel["type"] != "row"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in shown}) == len(shown) >= 9
    for panel in shown:
        assert panel["description"].endswith(".")
        assert panel["targets"]
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_queries_are_of_series_and_labels_that_exist(query: PanelQuery) -> None:
    known = {name_of(family): {*labels_of(family)} for family in families()}
    for name in re.findall(r"\bpaceline_[a-z_]+", query.expression):
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in known or (plain in known and name not in known), name
        labels = known.get(name, known.get(plain, set()))
        for used in re.findall(rf"{name}{{([^}}]*)}}", query.expression):
            assert {*re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", used)} <= labels, used
