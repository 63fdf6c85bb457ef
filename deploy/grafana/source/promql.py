"""Words of PromQL that several panels use. `WINDOW` and `RANGE` are Grafana's variables."""

from typing import Final

# Four scrapes at least, and as much as a pixel of the graph stands for.
WINDOW: Final = "$__rate_interval"
# What the dashboard shows, as one window.
RANGE: Final = "$__range"
CHOSEN: Final = 'profile=~"$profile"'


def per_second(series: str, by: str, *matchers: str, window: str = WINDOW) -> str:
    """How fast a counter grows, added up by these labels."""
    return f"sum by ({by}) (rate({selected(series, *matchers)}[{window}]))"


def growth(series: str, by: str, *matchers: str, window: str = RANGE) -> str:
    """By how much a counter grew."""
    return f"sum by ({by}) (increase({selected(series, *matchers)}[{window}]))"


def mean(histogram: str, by: str, *matchers: str, window: str = WINDOW) -> str:
    """The exact mean of what a histogram observed; no value where that was nothing."""
    observed = per_second(f"{histogram}_count", by, *matchers, window=window)
    return f"{per_second(f'{histogram}_sum', by, *matchers, window=window)} / ({observed} > 0)"


def speed(by: str, *matchers: str, window: str = WINDOW) -> str:
    """Generation tokens/s, exactly, of all tokens together whose time engines told."""
    tokens, seconds = (
        per_second(f"paceline_request_{part}_total", by, *matchers, window=window)
        for part in ("timed_tokens", "generation_seconds")
    )
    return f"{tokens} / ({seconds} > 0)"


def quantile(rank: float, histogram: str, by: str, *matchers: str, window: str = WINDOW) -> str:
    """A quantile, estimated from the buckets of a histogram."""
    return f"histogram_quantile({rank:g}, {per_second(f'{histogram}_bucket', f'{by}, le', *matchers, window=window)})"


def selected(series: str, *matchers: str) -> str:
    """The series of the chosen profiles that match."""
    return f"{series}{{{', '.join((CHOSEN, *matchers))}}}"
