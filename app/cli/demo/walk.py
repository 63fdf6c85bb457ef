"""The demo, step by step. All it shows comes from the service's API."""

import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from app.cli.client import ServiceClient, ServiceProblem, ServiceUnreachable
from app.cli.demo.model import DemoFailed, ensure_model
from app.cli.demo.only_one import only_demo
from app.cli.demo.profiles import BASELINE, NGRAM, PROFILES, PROMPT, chat_request, list_request
from app.cli.demo.service import DemoService
from app.cli.loading import print_outcome, start_profile
from app.cli.memory_picture import print_memory
from app.cli.render import print_last_lines, speeds_table
from app.cli.stats import DEFAULT_GROUPS
from app.cli.stats_table import print_verdicts, stats_table

_RECORDED_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
# One more than the fewest on each side by which requests are compared.
_TIMES = 6
_SHOWN = {1: "first", _TIMES: "last"}


def run_demo(console: Console, folder: Path, *, serve_on: bool) -> None:
    """Show everything once, then serve until Ctrl-C where that is asked for. Raises DemoFailed, ServiceProblem."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    with only_demo(folder) as tell:
        ensure_model(console, models)
        with DemoService(folder, models) as service:
            tell(service.url)
            _walk(console, service)
            if serve_on:
                _serve_on(console, service)
    console.print("everything that the demo started has ended")


def _walk(console: Console, service: DemoService) -> None:
    try:
        with ServiceClient(service.url) as client:
            _launch(console, client)
            _stream(console, client)
            _compare(console, client)
    except ServiceUnreachable as failure:
        raise service.failure() from failure


def _launch(console: Console, client: ServiceClient) -> None:
    version = client.get("/version")
    engine = version["engine"]
    if engine is None:
        raise DemoFailed(version["engine_problem"])
    console.print(f"service at {client.url}, engine {engine['kind']}, build {engine['build']}\n", soft_wrap=True)
    for document in PROFILES:
        profile_id = document["id"]
        client.put(f"/profiles/{profile_id}", document)
        report = client.post(f"/profiles/{profile_id}/check")
        rules = ", ".join(f"{finding['severity']} {finding['rule']}" for finding in report["findings"])
        console.print(f"check {profile_id}: {report['verdict'].replace('_', ' ')} ({rules or 'no findings'})")
        print_memory(console, report)
        instance = start_profile(client, console, profile_id)
        if not print_outcome(console, instance):
            print_last_lines(console, (instance["failure"] or {}).get("last_lines", []))
            raise DemoFailed(f"{profile_id} did not start; the lines above are the engine's last")


def _stream(console: Console, client: ServiceClient) -> None:
    console.print(f"\na chat completion by {BASELINE}, streamed:", style="bold")
    console.print(f"{PROMPT}", style="dim", end="")
    try:
        for piece in client.chat_deltas(chat_request()):
            console.print(piece, end="", soft_wrap=True)
    finally:
        console.print(" …\n")


def _compare(console: Console, client: ServiceClient) -> None:
    console.print(f"the same list repeated by both in turn, {_TIMES} times, as the service recorded it:", style="bold")
    began = datetime.now(UTC)
    shown: dict[str, list[tuple[str, Mapping[str, Any]]]] = {BASELINE: [], NGRAM: []}
    # By turns, so that what else the machine does slows both.
    for number in range(1, _TIMES + 1):
        for profile_id, rows in shown.items():
            with console.status(f"{profile_id}, {number} of {_TIMES}"):
                row = _recorded(client, client.completion(list_request(profile_id)))
            if number in _SHOWN:
                rows.append((_SHOWN[number], row))
    console.print(speeds_table([*shown[BASELINE], *shown[NGRAM]]))
    console.print("\nand what `paceline stats` says of all of them:", style="bold")
    names = DEFAULT_GROUPS.split(",")
    items = client.get("/stats", group_by=DEFAULT_GROUPS, since=began.isoformat())["items"]
    console.print(stats_table(items, names))
    print_verdicts(console, items, names)
    console.print(
        "\nThis prompt was chosen to repeat itself, and the verdict is of this prompt alone: where nothing repeats, "
        "n-gram\ndrafts find nothing and the two are alike. Of the baseline all requests count, those of earlier demos "
        "too.\n",
        soft_wrap=True,
    )


def _recorded(client: ServiceClient, request_id: str) -> Mapping[str, Any]:
    """The row of a finished request. It is written a moment after the answer."""
    deadline = time.monotonic() + _RECORDED_SECONDS
    while True:
        try:
            row: Mapping[str, Any] = client.get(f"/requests/{request_id}")
        except ServiceProblem:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return row


def _serve_on(console: Console, service: DemoService) -> None:
    for path, what in (("/v1", "the API for OpenAI clients"), ("/docs", "the control API"), ("/metrics", "Prometheus")):
        console.print(f"  {service.url + path:<32} {what}", soft_wrap=True)
    # A whole second, and after all that the demo asked.
    after = datetime.now(UTC) + timedelta(seconds=1)
    console.print(
        f"\nDoes speculation pay for what you ask? Ask both models at least five times, then, in another terminal:\n"
        f"  paceline stats --url {service.url} --since {after:%Y-%m-%dT%H:%M:%SZ}\n"
        "Without --since the demo's own requests count as well, those of earlier demos too.",
        soft_wrap=True,
    )
    try:
        console.print(f"\nmodels: {BASELINE}, {NGRAM}. It serves until Ctrl-C.")
        service.wait()
    except KeyboardInterrupt:
        console.print()


def _leave(number: int, _: FrameType | None) -> None:
    """End in order, as after Ctrl-C, with the code that a shell gives to this signal."""
    sys.exit(128 + number)
