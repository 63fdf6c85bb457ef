"""Does speculation pay, and why (not)?"""

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from .panels import Head, Limits, Query, Unit, bars, board, choice, graph, number, profiles, several
from .promql import RANGE, WINDOW, growth, mean, per_second, quantile, selected, speed

_DRAFTS: Final = "paceline_spec_decode_num_drafts_total"
_DRAFTED: Final = "paceline_spec_decode_num_draft_tokens_total"
_ACCEPTED: Final = "paceline_spec_decode_num_accepted_tokens_total"
_BY_POSITION: Final = "paceline_spec_decode_num_accepted_tokens_per_pos_total"
_SPEEDUP: Final = "paceline_speculation_speedup_ratio"
_SPEED: Final = "paceline_request_generation_tokens_per_second"
_BY: Final = "profile, method"
_LEGEND: Final = "{{profile}} ({{method}})"
# What a profile may be compared with: those that have not speculated since the service started.
_PLAIN: Final = (
    f'query_result(group by (profile) (paceline_requests_in_flight{{profile!=""}}) unless on (profile) {_DRAFTS})'
)
_BY_CATEGORY: Final = f"{_BY}, category"
_LEGEND_OF_CATEGORY: Final = f"{_LEGEND} {{{{category}}}}"
_OF_CATEGORY: Final = 'category=~"$category"'
_DEGRADATIONS: Final = 'degradation=~"speculation-.*|acceptance-collapsed|slower-than-baseline|draft-.*"'
_PAYBACK: Final = Limits("red", ((0.95, "yellow"), (1.05, "green")))


def speculation() -> dashboard.Dashboard:
    """The dashboard."""
    baseline = choice("baseline", "Baseline", _PLAIN).regex('/profile="([^"]+)"/')
    category = several("category", "Category", "label_values(paceline_request_timed_tokens_total, category)")
    text = "Acceptance from the engines' own counters, and speed against a profile without speculation."
    built = board("paceline-speculation", "Paceline: speculation", text, profiles(), baseline, category)
    for row in (_payback, _acceptance, _categories, _positions, _speed):
        row(built)
    return built


def _payback(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Does it pay?"))
    built.with_panel(
        number(
            Head(
                "Gained in seven days",
                "Generation tokens/s as a multiple of what was recorded of the same target without speculation, "
                "category for category: Paceline finds the baseline, and whatever else it served does not count. Below "
                "0.95 speculation costs more than it gives. Of the last seven days, whatever time is shown; minutes "
                "old. Not here: who has no baseline, or under five requests of each kind, or was at rest for all of "
                "the time shown. GET /stats has intervals.",
                Unit.TIMES,
                width=10,
                decimals=2,
            ),
            Query(f"max by (profile) (last_over_time({selected(_SPEEDUP)}[{RANGE}]))", "{{profile}}"),
            limits=_PAYBACK,
        )
    )
    built.with_panel(
        number(
            Head(
                "Not as asked",
                "How many degradations of its speculation a living instance has. `paceline status PROFILE` says which.",
                Unit.COUNT,
                width=5,
            ),
            Query(f"sum by (profile) ({selected('paceline_instance_degraded', _DEGRADATIONS)})", "{{profile}}"),
            limits=Limits("green", ((1, "red"),)),
        )
    )
    built.with_panel(
        number(
            Head(
                "Not counted",
                "1 where somebody else scrapes the engine of a profile: Paceline then leaves its counters alone, and "
                "its acceptance stands still here, until ten minutes after the last such scrape.",
                Unit.COUNT,
                width=4,
            ),
            Query(f"max by (profile) ({selected('paceline_spec_decode_paused')})", "{{profile}}"),
            limits=Limits("green", ((1, "yellow"),)),
        )
    )
    built.with_panel(
        number(
            Head("Tokens wasted", "Draft tokens that targets did not keep, over the time shown.", Unit.TOKENS, width=5),
            Query(f"{growth(_DRAFTED, _BY)} - {growth(_ACCEPTED, _BY)}", _LEGEND),
        )
    )
    built.with_panel(
        number(
            Head(
                "Speed against the baseline",
                "Mean generation tokens/s of requests / that of the baseline which is chosen above, over the time "
                "shown: what a change of today did. Choose one of the same target, devices and build; where it served "
                "other work, look at the categories.",
                Unit.TIMES,
                width=8,
                decimals=2,
            ),
            Query(_against_baseline(RANGE), "{{profile}}"),
            limits=_PAYBACK,
        )
    )
    built.with_panel(
        number(
            Head(
                "Speed against the baseline by category",
                "Generation tokens/s of a kind of work / those of the baseline at the same kind, over the time shown. "
                "What pays for code may cost speed in a chat. A kind that either has not served in that time is not "
                "here.",
                Unit.TIMES,
                width=16,
                decimals=2,
            ),
            Query(_against_baseline_of_category(RANGE), _LEGEND_OF_CATEGORY),
            limits=_PAYBACK,
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


def _categories(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("By category"))
    drafted, accepted = (
        per_second(f"paceline_request_{part}_tokens_total", _BY_CATEGORY, _OF_CATEGORY)
        for part in ("draft", "accepted")
    )
    built.with_panel(
        graph(
            Head(
                "Acceptance rate by category",
                "Accepted / drafted tokens, as single responses reported both: answers without such a report are not "
                "in it, so it need not be the mean of all traffic.",
                Unit.SHARE,
                width=8,
                most=1,
            ),
            Query(f"{accepted} / ({drafted} > 0)", _LEGEND_OF_CATEGORY),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Generation tokens/s by category",
                "Of all tokens of a kind of work together: those after the first of each request / their time.",
                Unit.TOKENS_PER_SECOND,
                width=8,
            ),
            Query(speed(_BY_CATEGORY, _OF_CATEGORY), _LEGEND_OF_CATEGORY),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Speed against the baseline by category over time",
                "The same as a multiple of what the baseline had at the same kind of work over all of the time shown.",
                Unit.TIMES,
                width=8,
                decimals=2,
            ),
            Query(_against_baseline_of_category(WINDOW), _LEGEND_OF_CATEGORY),
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
            # Series by position begin with a value, which no growth over a time counts.
            Query(
                f"sum by ({by_position}) ({selected(_BY_POSITION)}) / {matched} "
                f"(sum by ({_BY}) ({selected(_DRAFTS)}) > 0)",
                legend,
            ),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Accepted by position",
                "The same over time. Too low in the minutes after the first drafts since the service started, which "
                "count as drafts alone.",
                Unit.SHARE,
                most=1,
            ),
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


def _against_baseline_of_category(window: str) -> str:
    tokens, seconds = (
        f'sum by (category) (rate(paceline_request_{part}_total{{profile="$baseline"}}[{RANGE}]))'
        for part in ("timed_tokens", "generation_seconds")
    )
    of_profile = speed(_BY_CATEGORY, _OF_CATEGORY, window=window)
    return f"({of_profile}) / on (category) group_left () ({tokens} / ({seconds} > 0))"
