"""What lies in a place, in words: layers of the target, its output, its experts, the draft model."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.cli.memory_bars import HOST, Place
from app.placement.amounts import counted

_NO_DEVICE = "none"


def contents(report: Mapping[str, Any], place: Place) -> str:
    """One line for a place of a report; empty where nothing of the models lies there."""
    spans = [span for span in report["layers"] if span["device"] == place.name]
    parts = [", ".join([*_layers(spans), *_guests(report, place)])]
    if place.name == HOST:
        parts += _host_only(report, place, has_layers=bool(spans))
    elif moved := sum(span["experts_on_host"] for span in spans):
        parts.append(f"experts of {moved} on the host")
    return "; ".join(part for part in parts if part)


def _layers(spans: list[Mapping[str, Any]]) -> Iterator[str]:
    ranges = [
        str(span["first"]) if span["first"] == span["last"] else f"{span['first']}-{span['last']}" for span in spans
    ]
    if ranges:
        one = len(spans) == 1 and spans[0]["first"] == spans[0]["last"]
        yield f"{'layer' if one else 'layers'} {', '.join(ranges)}"


def _guests(report: Mapping[str, Any], place: Place) -> Iterator[str]:
    """What is there beside the layers."""
    resolved = report["resolved"]
    if report["layers"] and resolved.get("output_device") == place.name:
        yield "output"
    device, layers = resolved.get("draft_device"), resolved.get("draft_layers")
    if (HOST if device == _NO_DEVICE else device) == place.name:
        yield f"{counted(layers, 'layer')} of the draft" if isinstance(layers, int) else "draft"


def _host_only(report: Mapping[str, Any], place: Place, *, has_layers: bool) -> Iterator[str]:
    """The engine keeps input embeddings on the host wherever the layers are."""
    if place.terms.get("weights") and not has_layers:
        yield "input embeddings"
    # Devices that share every layer each list them all.
    moved = {(span["first"], span["last"]): span["experts_on_host"] for span in report["layers"]}
    if count := sum(moved.values()):
        yield f"experts of {counted(count, 'layer')}"
