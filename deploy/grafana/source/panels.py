"""The few kinds of panels that the dashboards have, all on the one data source."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# As deploy/grafana/provisioning has it.
SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="paceline-prometheus")
TAG: Final = "paceline"
_HEIGHT: Final = 8
_Panel = TypeVar("_Panel", stat.Panel, bargauge.Panel, timeseries.Panel)


class Unit(Enum):
    """Units by Grafana's names."""

    SHARE = "percentunit"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    SECONDS = "s"
    WATTS = "watt"
    CELSIUS = "celsius"
    COUNT = "short"
    TOKENS = "suffix: tokens"
    TOKENS_PER_SECOND = "suffix: tokens/s"
    REQUESTS_PER_SECOND = "reqps"
    TIMES = "suffix: x"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and how its series are called: every label that the legend names must be there."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Limits:
    """From which values on a number is which colour; `first` is the colour below."""

    first: str
    steps: Sequence[tuple[float, str]] = ()

    def thresholds(self) -> dashboard.ThresholdsConfig:
        """As Grafana has it."""
        steps = [models.Threshold(value=value, color=colour) for value, colour in self.steps]
        lowest = models.Threshold(value=None, color=self.first)
        return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps([lowest, *steps])


NEUTRAL: Final = Limits("blue")


@dataclass(frozen=True, slots=True)
class Head:
    """What every panel has. `width` is of 24."""

    title: str
    text: str
    unit: Unit
    width: int = 12
    decimals: int | None = None
    most: float | None = None


def graph(head: Head, *queries: Query, stacked: bool = False, lowest: float | None = 0) -> timeseries.Panel:
    """Lines over time; the axis begins at `lowest`, or where the values do."""
    panel = _panel(timeseries.Panel(), head, queries, is_instant=False)
    panel.legend(
        common.VizLegendOptions()
        .display_mode(shapes.LegendDisplayMode.TABLE)
        .placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    panel.tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    panel.fill_opacity(40 if stacked else 8).show_points(shapes.VisibilityMode.AUTO)
    if lowest is not None:
        panel.min(lowest)
    if stacked:
        panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    return panel


def number(head: Head, *queries: Query, limits: Limits = NEUTRAL) -> stat.Panel:
    """One number of now for each series."""
    panel = _panel(stat.Panel(), head, queries, is_instant=True)
    panel.thresholds(limits.thresholds()).reduce_options(_last()).text_mode(shapes.BigValueTextMode.VALUE_AND_NAME)
    return panel.color_mode(shapes.BigValueColorMode.BACKGROUND).graph_mode(shapes.BigValueGraphMode.NONE)


def bars(head: Head, *queries: Query) -> bargauge.Panel:
    """One bar of now for each series."""
    panel = _panel(bargauge.Panel(), head, queries, is_instant=True).min(0)
    panel.thresholds(NEUTRAL.thresholds()).reduce_options(_last())
    return panel.orientation(shapes.VizOrientation.HORIZONTAL).display_mode(shapes.BarGaugeDisplayMode.BASIC)


def board(uid: str, title: str, text: str, *variables: dashboard.QueryVariable) -> dashboard.Dashboard:
    """A dashboard without panels, with links to the others."""
    others = dashboard.DashboardLink("Paceline").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    others.keep_time(True).include_vars(True)
    built = dashboard.Dashboard(title).uid(uid).description(text).tags([TAG]).readonly().link(others)
    built.time("now-1h", "now").refresh("30s").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    for variable in variables:
        built.with_variable(variable)
    return built


def choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A variable with values from Prometheus."""
    variable = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    return variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)


def several(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A variable of any number of values: all, to begin with, also those that come later."""
    everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    return choice(name, label, query).multi(True).include_all(True).all_value(".*").current(everything)


def profiles() -> dashboard.QueryVariable:
    """The profiles to look at. All of them include requests that reached none, whose label is empty."""
    return several("profile", "Profile", "label_values(paceline_requests_in_flight, profile)")


def _panel(panel: _Panel, head: Head, queries: Sequence[Query], *, is_instant: bool) -> _Panel:
    panel.title(head.title).description(head.text).datasource(SOURCE).unit(head.unit.value)
    panel.span(head.width).height(_HEIGHT)
    if head.decimals is not None:
        panel.decimals(head.decimals)
    if head.most is not None:
        panel.max(head.most)
    for number_of_query, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).datasource(SOURCE)
        target.format(PromQueryFormat.TIME_SERIES).ref_id(chr(ord("A") + number_of_query))
        panel.with_target(target.instant() if is_instant else target.range())
    return panel


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
