"""A scrape as bytes. The library's writers hold the interpreter, and so the streams, more than twice as long."""

import time
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

from prometheus_client import Metric
from prometheus_client.samples import Sample

_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
# What the plain format has no word for.
_PLAIN_TYPES = {"info": "gauge", "unknown": "untyped"}
_PLAIN_SUFFIXES = {"counter": "_total", "info": "_info"}


def name_of(family: Metric) -> str:
    """The name as the plain format and queries have it; of a histogram that of the family."""
    return family.name + _PLAIN_SUFFIXES.get(family.type, "")


def plain_text(families: Iterable[Metric]) -> bytes:
    """Prometheus text, version 0.0.4: UTF-8, and without exemplars."""
    lines: list[str] = []
    for family in _with_pauses(families):
        kind = _PLAIN_TYPES.get(family.type, family.type)
        lines += _head(name_of(family), kind, family.documentation.translate(_IN_HELP))
        lines += [f"{sample.name}{_labels(sample.labels)} {_value(sample.value)}\n" for sample in family.samples]
    return "".join(lines).encode()


def openmetrics(families: Iterable[Metric]) -> bytes:
    """OpenMetrics, version 1.0.0."""
    lines: list[str] = []
    for family in _with_pauses(families):
        lines += _head(family.name, family.type, family.documentation.translate(_IN_LABELS))
        lines += [
            f"{sample.name}{_labels(sample.labels)} {_value(sample.value)}{_exemplar(sample)}\n"
            for sample in family.samples
        ]
    return "".join([*lines, "# EOF\n"]).encode()


def _with_pauses(families: Iterable[Metric]) -> Iterator[Metric]:
    """Lets go of the interpreter after each: the event loop would otherwise wait 5 ms for its turn, and streams too."""
    for family in families:
        yield family
        time.sleep(0)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}\n"
    yield f"# TYPE {name} {kind}\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    # Hardly any has something to escape, and to look for that in all at once saves a fifth of a scrape.
    values = "".join(labels.values())
    if '"' in values or "\\" in values or "\n" in values:
        labels = {name: value.translate(_IN_LABELS) for name, value in labels.items()}
    return "{" + ",".join([f'{name}="{value}"' for name, value in labels.items()]) + "}"


def _value(value: float) -> str:
    return repr(float(value)) if isfinite(value) else str(value).replace("inf", "Inf").replace("nan", "NaN")


def _exemplar(sample: Sample) -> str:
    if sample.exemplar is None:
        return ""
    return f" # {_labels(sample.exemplar.labels) or '{}'} {_value(sample.exemplar.value)}"
