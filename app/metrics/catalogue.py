"""`python -m app.metrics.catalogue > docs/metrics.md`: every series there is, from the registry itself."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import Metric

from app.metrics.exposition import name_of
from app.metrics.series import Series, Sources
from app.metrics.starts import OBSTACLES, OTHER, RULE_CLASSES

_EXAMPLE: Final = "example"
_OBSTACLES: Final = ", ".join(f"`{reason}`" for reason in (*OBSTACLES, OTHER))
_SECTIONS: Final[Sequence[tuple[str, Sequence[str], str]]] = (
    (
        "Requests",
        ("paceline_request",),
        "Endpoints, outcomes and categories are those of the [request rows](guide.md#requests). Counts of drafts are\n"
        "what single responses reported, and come with the first that did: never divide them by those of the next\n"
        "section, or the other way round. `timed_tokens` / `generation_seconds` is the speed, exactly, of all tokens\n"
        "together; compare profiles within a category, since each has its own mix of work. The outcome\n"
        "`upstream_error` has all that an engine answered with an error, what its client asked wrongly (a 4xx) too.",
    ),
    (
        "Speculation",
        ("paceline_spec_decode_", "paceline_speculation_"),
        "`spec_decode` has one source: the engines' own counters, so all traffic is in them. They are read every 15\n"
        "seconds and before an instance ends, and left alone for ten minutes after somebody else has read them\n"
        "through Paceline. The suffixes are those of llama.cpp and vLLM. The speed-up is that of\n"
        "[`/stats`](guide.md#requests), which has intervals: against what was recorded of the same target without\n"
        "speculation. It is absent where there is nothing to compare, and for profiles at rest; up to five minutes\n"
        "old, or more where the database cannot be read, or takes over three seconds for it.",
    ),
    (
        "Instances",
        ("paceline_instance_", "paceline_residency_", "paceline_queue_"),
        "States, degradations and the reasons of failed starts are on the [operations page](operations.md). `result`\n"
        "of a start is `ready`, `refused` by a class of rules (see below), `not-begun` where something else was in\n"
        "its way, or `failed` for the reason of its end. One that is stopped, or left by its client, before it was\n"
        "ready is in no result, and a request that is answered with an earlier failure is no start. A reason has its\n"
        "series from its first start on, which an increase cannot count. `source` of\n"
        "memory is `predicted`, by the plan, or `measured`, from the engine's output, which does not tell all that\n"
        "was planned: compare like terms. `cause` of a restart is\n"
        "`failure`, `asked` or `fallback`. Requests wait in the queue of their profile; what leases are over slots\n"
        "waits inside the engine.\n\n"
        f"`reason` of a start that was not begun: {_OBSTACLES}.",
    ),
    (
        "Devices and host",
        ("paceline_device_", "paceline_host_"),
        "Devices have the engine's names, and `host` is the memory beside them. What a driver tells is from looks\n"
        "that are taken each second while instances live: a scrape asks no driver, and a minute after the last look\n"
        "there is nothing to show but sizes and our own shares.",
    ),
    ("Service", ("paceline_",), "What runs, and how its database keeps up."),
)
_INTRODUCTION: Final = """# Metrics

<!-- Made by `make metrics-page`: change app/metrics/catalogue.py, or the series, instead. -->

What `GET /metrics` gives, as Prometheus text, or as OpenMetrics with the id of a recent request as exemplar of each
bucket where the scraper asks for that. Queries that answer most questions are [in the guide](guide.md#metrics).

- Label values are ids of profiles, names of devices and words of Paceline, never anything that a client sent. `profile`
  is empty where a request reached none.
- Series by profile exist from its creation, with 0, and go when it is deleted. Those by endpoint, outcome, reason,
  category or position come with their first use; levels of an instance (memory, degradations, leases, slots) are of
  living ones, and absent, not 0, where none lives.
- Histograms, counts by position or category, and the states in which an instance is not (0), are of profiles with a
  living instance, or with a request or an instance within the last 15 minutes. Those of a profile at rest would repeat
  themselves. They come back in the first scrape after an instance began to load, with what they had before it, and have
  what is new from the next on: so rates have the request that waited for the load, too (where several scrape, those of
  the first). Only what ended before the first scrape since the service started is in no rate.
- 2,500 lines are enough for 50 profiles of which eight live, or lived in those 15 minutes. Where all fifty do, and have
  served every category, it is some 10,000. There are no `_created` series.
- Not there yet: how far a tuning run is. There is no tuner.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_INTRODUCTION, *_sections()]).rstrip("\n") + "\n"


def families() -> Sequence[Metric]:
    """Every family there is, with an example's series in those that have them from the start."""
    series = Series(Sources(profiles=lambda: (_EXAMPLE,), methods=lambda: {_EXAMPLE: "draft"}))
    series.awake.touch(_EXAMPLE)
    return list(series.registry.collect())


def labels_of(family: Metric) -> Sequence[str]:
    """The names of its labels, without the bound of a bucket."""
    declared: Sequence[str] = getattr(family, "_labelnames", ())
    return declared or [label for sample in family.samples for label in sample.labels if label != "le"]


def _sections() -> Iterator[str]:
    left = {family.name: family for family in families()}
    for heading, prefixes, text in _SECTIONS:
        chosen = [left.pop(name) for name in list(left) if name.startswith(tuple(prefixes))]
        yield f"## {heading}\n\n{text}\n\n| series | type | labels | meaning |\n|---|---|---|---|"
        yield from (_row(family) for family in chosen)
        yield ""
        if heading == "Instances":
            yield from _classes()
        for family in chosen:
            if family.type == "histogram":
                yield f"Buckets of `{family.name}`: {', '.join(_bounds(family))}.\n"


def _classes() -> Iterator[str]:
    yield "| `reason` of a refused start | [rules](guide.md#the-rules) |\n|---|---|"
    for name, rules in RULE_CLASSES.items():
        yield f"| `{name}` | {', '.join(f'`{rule}`' for rule in sorted(rules))} |"
    yield f"| `{OTHER}` | any other |\n"


def _row(family: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in labels_of(family))
    return f"| `{name_of(family)}` | {family.type} | {labels} | {family.documentation} |"


def _bounds(family: Metric) -> list[str]:
    bounds = [float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels]
    return [f"{bound:g}" for bound in bounds if bound != float("inf")]


if __name__ == "__main__":
    sys.stdout.write(page())
