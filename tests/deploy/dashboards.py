"""The committed dashboards as their queries."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deploy.dockerfile import ROOT

FOLDER: Final = ROOT / "deploy/grafana/dashboards"
DASHBOARDS: Final[Mapping[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}


@dataclass(frozen=True)
class PanelQuery:
    """One query of one panel."""

    dashboard: str
    panel: str
    expression: str
    legend: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.legend}"

    @property
    def labels(self) -> set[str]:
        """What its legend shows: each series has to have these."""
        return set(re.findall(r"{{(\w+)}}", self.legend))

    def filled(self, variables: Mapping[str, str]) -> str:
        """As Grafana would send it."""
        return filled(self.expression, variables)


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """With a value for each variable; one that has none is a mistake."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)


QUERIES: Final = [
    PanelQuery(name, panel["title"], target["expr"], target["legendFormat"])
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    for target in panel.get("targets", ())
]
SERIES: Final = {name for query in QUERIES for name in re.findall(r"\bpaceline_[a-z_]+", query.expression)}
# What is chosen above a dashboard, and what Grafana says of the time shown.
VARIABLES: Final = {
    **{"profile": ".*", "device": ".*", "category": ".*", "baseline": "baseline"},
    **{"__rate_interval": "1m", "__range": "5m"},
}


def panel_query(dashboard: str, title: str) -> PanelQuery:
    """The first query of a panel."""
    return next(query for query in QUERIES if (query.dashboard, query.panel) == (dashboard, title))


def _section(heading: str) -> str:
    """This part of the guide."""
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    return text.split(f"\n{heading}\n")[1].split("\n## ")[0]


# The example queries of the guide.
GUIDE_QUERIES: Final = [
    query
    for row in re.findall(r"^\| .* \| (`.*`) \|$", _section("### Metrics"), re.MULTILINE)
    for query in re.findall(r"`([^`]+)`", row)
]
