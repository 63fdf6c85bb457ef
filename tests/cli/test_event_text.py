from datetime import datetime
from typing import Any

import pytest

from app.cli.event_text import event_line

NOON = datetime(2026, 1, 31, 12, 0, 0)


@pytest.mark.parametrize(
    ("name", "document", "said"),
    [
        ("instance.state", {"state": "loading"}, "gemma  loading"),
        ("instance.state", {"state": "ready", "load_seconds": 2.54}, "gemma  ready after 2.5 s"),
        # What a later life does to an instance that is known no more: a few fields only.
        ("instance.state", {"state": "failed", "reason": "exited"}, "gemma  failed: exited"),
        (
            "instance.state",
            {"state": "failed", "reason": "bad-model", "failure": {"message": "No such file."}, "load_seconds": None},
            "gemma  failed: No such file.",
        ),
        (
            "instance.load_progress",
            {"load_progress": {"stage": "weights", "fraction": 0.256, "seconds": 4.4}},
            "gemma  weights 26%, 4 s",
        ),
        (
            "instance.load_progress",
            {"load_progress": {"stage": "process", "fraction": None, "seconds": 0}},
            "gemma  process, 0 s",
        ),
        ("instance.degraded", {"degradations": ["a", "b"]}, "gemma  a, b"),
        ("instance.degraded", {"degradations": []}, "gemma  no longer degraded"),
        (
            "residency.evicted",
            {"evicted_profile_ids": ["x", "y"], "freed_seconds": 0.51},
            "gemma  makes room: x, y ended, memory free after 0.5 s",
        ),
        (
            "residency.evicted",
            {"evicted_profile_ids": ["x"], "freed_seconds": None},
            "gemma  makes room: x ended, their memory has not shown up as free yet",
        ),
        (
            "finding",
            {"finding": {"severity": "error", "rule": "device-memory", "message": "Too much."}},
            "gemma  error device-memory: Too much.",
        ),
        ("tuning.progress", {}, 'gemma  {"profile_id": "gemma"}'),
    ],
)
def test_an_event_is_one_line(name: str, document: dict[str, Any], said: str) -> None:
    line = event_line(name, {"profile_id": "gemma", **document}, NOON).plain
    assert line == f"12:00:00  {name:<22}{said}"


@pytest.mark.parametrize(("count", "said"), [(3, "3"), (None, "some")])
def test_missed_events_are_counted_where_that_is_known(count: int | None, said: str) -> None:
    assert event_line("missed", {"missed": count}, NOON).plain.endswith(f"{said} events are no longer kept")


def test_a_request_that_failed_says_why() -> None:
    row = {
        "profile_id": None, "outcome": "rejected", "error": "no profile", "duration_seconds": 0.001,
        "generated_tokens": None, "generation_tokens_per_second": None, "acceptance_rate": None,
    }  # fmt: skip
    assert event_line("request.finished", row, NOON).plain.split("  ")[-1].strip() == "rejected: no profile, 0.00 s"
