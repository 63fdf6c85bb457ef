"""Does speculation pay, and why (not)?"""

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from .panels import Head, Limits, Query, Unit, bars, board, choice, graph, number, profiles
from .promql import RANGE, WINDOW, growth, mean, per_second, quantile, selected

_DRAFTS: Final = "paceline_spec_decode_num_drafts_total"
_DRAFTED: Final = "paceline_spec_decode_num_draft_tokens_total"
_ACCEPTED: Final = "paceline_spec_decode_num_accepted_tokens_total"
_BY_POSITION: Final = "paceline_spec_decode_num_accepted_tokens_per_pos_total"
_SPEED: Final = "paceline_request_generation_tokens_per_second"
_BY: Final = "profile, method"
_LEGEND: Final = "{{profile}} ({{method}})"
# What a profile may be compared with: those that have not speculated since the service started.
_PLAIN: Final = (
    f'query_result(group by (profile) (paceline_requests_in_flight{{profile!=""}}) unless on (profile) {_DRAFTS})'
)
_DEGRADATIONS: Final = 'degradation=~"speculation-.*|acceptance-collapsed|slower-than-baseline|draft-.*"'


def speculation() -> dashboard.Dashboard:
    """The dashboard."""
    baseline = choice("baseline", "Baseline", _PLAIN).regex('/profile="([^"]+)"/')
    text = "Acceptance from the engines' own counters, and speed against a profile without speculation."
    built = board("paceline-speculation", "Paceline: speculation", text, profiles(), baseline)
    for row in (_payback, _acceptance, _positions, _speed):
        row(built)
    return built


def _payback(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Does it pay?"))
    built.with_panel(
        number(
            Head(
                "Speed against the baseline",
                "Mean generation tokens/s of requests / that of the baseline, over the time shown. Below 0.95 "
                "speculation costs more than it gives. Choose a baseline of the same target, devices and build.",
                Unit.TIMES,
                decimals=2,
            ),
            Query(_against_baseline(RANGE), "{{profile}}"),
            limits=Limits("red", ((0.95, "yellow"), (1.05, "green"))),
        )
    )
    built.with_panel(
        number(
            Head(
                "Not as asked",
                "How many degradations of its speculation a living instance has. `paceline status PROFILE` says which.",
                Unit.COUNT,
                width=6,
            ),
            Query(f"sum by (profile) ({selected('paceline_instance_degraded', _DEGRADATIONS)})", "{{profile}}"),
            limits=Limits("green", ((1, "red"),)),
        )
    )
    built.with_panel(
        number(
            Head("Tokens wasted", "Draft tokens that targets did not keep, over the time shown.", Unit.TOKENS, width=6),
            Query(f"{growth(_DRAFTED, _BY)} - {growth(_ACCEPTED, _BY)}", _LEGEND),
        )
    )


def _acceptance(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Acceptance"))
    built.with_panel(
        graph(
            Head(
                "Acceptance rate",
                "Accepted / drafted tokens. High, and the speed is low: the drafter is too expensive. Low: it is the "
                "wrong one, or its drafts are too long.",
                Unit.SHARE,
                most=1,
            ),
            Query(f"{per_second(_ACCEPTED, _BY)} / ({per_second(_DRAFTED, _BY)} > 0)", _LEGEND),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Mean acceptance length",
                "Tokens that one step of the target gives: accepted ones, and the one of its own. 1 is no gain.",
                Unit.TOKENS,
                decimals=2,
            ),
            Query(f"1 + {per_second(_ACCEPTED, _BY)} / ({per_second(_DRAFTS, _BY)} > 0)", _LEGEND),
        )
    )
    ratio = "paceline_spec_decode_acceptance_ratio"
    built.with_panel(
        graph(
            Head(
                "Acceptance rate of the worst windows",
                "A tenth of the windows of 15 seconds accepted less than this. Far below the rate of all: there is a "
                "task that it drafts badly.",
                Unit.SHARE,
                most=1,
            ),
            Query(quantile(0.1, ratio, _BY, window=RANGE), _LEGEND),
        )
    )
    built.with_panel(
        graph(
            Head("Tokens wasted per second", "Draft tokens that targets did not keep.", Unit.TOKENS_PER_SECOND),
            Query(f"{per_second(_DRAFTED, _BY)} - {per_second(_ACCEPTED, _BY)}", _LEGEND),
            stacked=True,
        )
    )


def _positions(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Acceptance by position"))
    by_position, matched = f"{_BY}, position", "on (profile, method) group_left ()"
    legend = "{{profile}} ({{method}}) {{position}}"
    built.with_panel(
        bars(
            Head(
                "Accepted by position, since the service started",
                "Accepted tokens at a position of the draft / drafts; the first is 0. Where it falls to a tenth, "
                "draft_tokens_max may end.",
                Unit.SHARE,
                most=1,
            ),
            # Series by position begin with a value, which no growth over a time would count.
            Query(
                f"sum by ({by_position}) ({selected(_BY_POSITION)}) / {matched} "
                f"(sum by ({_BY}) ({selected(_DRAFTS)}) > 0)",
                legend,
            ),
        )
    )
    built.with_panel(
        graph(
            Head("Accepted by position", "The same over time.", Unit.SHARE, most=1),
            Query(f"{per_second(_BY_POSITION, by_position)} / {matched} ({per_second(_DRAFTS, _BY)} > 0)", legend),
        )
    )


def _speed(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Speed"))
    built.with_panel(
        graph(
            Head(
                "Generation tokens/s of a request",
                "The mean of requests: tokens after the first / their time, from the engine's counts.",
                Unit.TOKENS_PER_SECOND,
            ),
            Query(mean(_SPEED, "profile"), "{{profile}}"),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Speed against the baseline over time",
                "The same as a multiple of the baseline's mean over all of the time shown, which may be at rest now.",
                Unit.TIMES,
                decimals=2,
            ),
            Query(_against_baseline(WINDOW), "{{profile}}"),
        )
    )


def _against_baseline(window: str) -> str:
    total, count = (f'sum(rate({_SPEED}_{part}{{profile="$baseline"}}[{RANGE}]))' for part in ("sum", "count"))
    return f"({mean(_SPEED, 'profile', window=window)}) / on () group_left () ({total} / ({count} > 0))"
