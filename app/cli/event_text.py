"""Events as lines of text."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

Document = Mapping[str, Any]

_NAME_WIDTH = 22
_STATE_STYLES = {"ready": "green", "failed": "red", "error": "bold red", "warning": "yellow"}


def event_line(name: str, document: Document, at: datetime | None = None) -> Text:
    """One line: when it was heard, what it is, whom it concerns, what there is to say of it."""
    describe = _DESCRIPTIONS.get(name, _plain)
    moment = (at or datetime.now()).strftime("%H:%M:%S")
    line = Text().append(f"{moment}  ", style="dim").append(f"{name:<{_NAME_WIDTH}}", style="bold")
    profile = document.get("profile_id")
    style = _STATE_STYLES.get(str(document.get("state") or document.get("finding", {}).get("severity")), "")
    return line.append(f"{profile}  " if profile else "").append(describe(document), style=style)


def _plain(document: Document) -> str:
    return json.dumps(document)


def _state(instance: Document) -> str:
    after = instance.get("load_seconds")
    seconds = f" after {after:.1f} s" if instance["state"] == "ready" and after is not None else ""
    failure = instance.get("failure") or {}
    reason = failure.get("message") or instance.get("reason")
    return f"{instance['state']}{seconds}" + (f": {reason}" if reason else "")


def _progress(instance: Document) -> str:
    load = instance["load_progress"]
    share = "" if load["fraction"] is None else f" {load['fraction']:.0%}"
    return f"{load['stage']}{share}, {load['seconds']:.0f} s"


def _degraded(instance: Document) -> str:
    return ", ".join(instance["degradations"]) or "no longer degraded"


def _request(row: Document) -> str:
    rate, share = row["generation_tokens_per_second"], row["acceptance_rate"]
    said = [row["outcome"] if row["error"] is None else f"{row['outcome']}: {row['error']}"]
    said.append(f"{row['duration_seconds']:.2f} s")
    if row["generated_tokens"] is not None:
        said.append(f"{row['generated_tokens']} tokens")
    if rate is not None:
        said.append(f"{rate:.1f} tokens/s")
    if share is not None:
        said.append(f"acceptance rate {share:.0%}")
    return ", ".join(said)


def _evicted(document: Document) -> str:
    freed = document["freed_seconds"]
    when = "their memory has not shown up as free yet" if freed is None else f"memory free after {freed:.1f} s"
    return f"makes room: {', '.join(document['evicted_profile_ids'])} ended, {when}"


def _finding(document: Document) -> str:
    finding = document["finding"]
    return f"{finding['severity']} {finding['rule']}: {finding['message']}"


def _missed(document: Document) -> str:
    return f"{'some' if document['missed'] is None else document['missed']} events are no longer kept"


_DESCRIPTIONS: Mapping[str, Callable[[Document], str]] = {
    "instance.state": _state,
    "instance.load_progress": _progress,
    "instance.degraded": _degraded,
    "request.finished": _request,
    "residency.evicted": _evicted,
    "finding": _finding,
    "missed": _missed,
}
