"""`paceline stats`: real requests, and what the service says of them, in words."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.paceline_command import Outcome, paceline
from fixtures.shapes import SHAPES
from fixtures.tiny_models import TinyModels
from rich.console import Console
from service import Service, eventually, running_service, settings_for

from app.cli.exit_codes import Exit
from app.cli.stats_table import print_verdicts, stats_table, verdict

REQUESTS = 6
SPEEDUP: dict[str, Any] = {
    "speedup": 1.834, "interval": {"low": 1.76, "high": 1.9, "confidence": 0.95}, "pays": True, "requests": 6,
    "baseline_requests": 9, "reason": None, "by_category": {}, "not_compared": {}, "baselines": ["plain"],
    "differences": [],
}  # fmt: skip
NOT_TOLD = {"speedup": None, "interval": None, "pays": None}
ITEM: dict[str, Any] = {
    "requests": 6, "generation_tokens_per_second": {"overall": 12.34}, "acceptance_rate": 0.914,
    "time_to_first_token_seconds": {"p50": 0.0625}, "speedup": SPEEDUP,
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    """A profile with enough requests to be a baseline, and one that has speculated twice."""
    settings = settings_for(tmp_path_factory.mktemp("stats"), tiny.dense_target.parent, engine="embedded")
    with running_service(settings) as service:
        for name, shape_id in (("fast", "ngram-simple"), ("plain", "baseline")):
            shape = next(shape for shape in SHAPES if shape.id == shape_id)
            service.add({**shape.document(tiny), "id": name})
        serve(service, "plain", REQUESTS)
        serve(service, "fast", 2)
        yield service


def serve(service: Service, profile_id: str, count: int) -> None:
    """So many requests, and wait until they are rows."""
    for answer in [service.complete(profile_id) for _ in range(count)]:
        eventually(lambda found=answer: service.row(found))


def asked(service: Service, folder: Path, *arguments: str) -> Outcome:
    return paceline("stats", *arguments, cwd=folder, settings={"PACELINE_URL": service.base_url})


def cells(shown: str, profile_id: str) -> list[str]:
    """Those of a row, which columns keep two spaces apart."""
    [row] = [line for line in shown.splitlines() if line.startswith(profile_id)]
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


def test_a_profile_that_speculates_stands_beside_its_baseline(recorded: Service, tmp_path: Path) -> None:
    """From too few requests, which are counted, to a speed-up with its interval."""
    early = asked(recorded, tmp_path).out
    assert cells(early, "fast")[:3] == ["fast", "ngram-simple", "2"]
    assert cells(early, "fast")[-1] == "-"
    few = "cannot be told, against plain: too few requests of a kind, 5 are needed on each side"
    assert early.endswith(f"\n\ndoes speculation pay?\n  fast, ngram-simple: {few} (other: 2 and {REQUESTS})\n")

    serve(recorded, "fast", REQUESTS - 2)
    # Of `--since` the service has not heard before, so this answer is a new one.
    told = asked(recorded, tmp_path, "--since", "24h")
    assert (told.code, told.err) == (Exit.DONE, "")
    fast, plain = cells(told.out, "fast"), cells(told.out, "plain")
    assert plain[:3] == ["plain", "none", str(REQUESTS)]
    assert (plain[4], plain[6]) == ("-", "-")
    assert fast[:3] == ["fast", "ngram-simple", str(REQUESTS)]
    assert fast[4] == "100%"
    low, _, high = fast[6].partition("(")[2].rstrip(")").split()
    assert float(low) <= float(fast[6].split()[0]) <= float(high)
    verdicts = told.out.split("does speculation pay?\n")[1]
    assert verdicts.startswith(
        ("  fast, ngram-simple: yes", "  fast, ngram-simple: no", "  fast, ngram-simple: cannot")
    )
    assert f", against plain ({REQUESTS} requests)" in verdicts
    assert verdicts.count("\n") == 1


def test_json_is_what_the_service_answers(recorded: Service, tmp_path: Path) -> None:
    told = json.loads(asked(recorded, tmp_path, "--json", "--by", "category,profile", "--profile", "plain").out)
    [item] = told["items"]
    assert (item["category"], item["profile"], item["requests"]) == ("other", "plain", REQUESTS)
    answer = recorded.client.get("/stats", params={"group_by": "category,profile", "profile": "plain"})
    assert told == answer.json()


def test_without_profiles_it_says_how_to_ask_whether_it_pays(recorded: Service, tmp_path: Path) -> None:
    assert asked(recorded, tmp_path, "--by", "category").out.endswith("--by profile,category\n")
    assert asked(recorded, tmp_path, "--by", "").out.endswith("--by profile\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--by", "categry"), Exit.REFUSED, "'categry' cannot be grouped by; profile,"),
        (("--profile", "plan"), Exit.REFUSED, '"plain"'),
        (("--since", "soon"), Exit.USAGE, "'soon' is no span such as 90min, 24h or 7d"),
        (("--since", "999999d"), Exit.USAGE, "'999999d' is no span"),
        (("--since", "2026-01-31"), Exit.REFUSED, "'2026-01-31' is no RFC 3339 time"),
    ],
)
def test_what_cannot_be_asked_is_said(
    recorded: Service, tmp_path: Path, arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    told = asked(recorded, tmp_path, *arguments)
    assert (told.code, told.out) == (code, "")
    assert said in " ".join(told.err.replace("│", " ").split())


def test_nothing_recorded_is_said(recorded: Service, tmp_path: Path) -> None:
    told = asked(recorded, tmp_path, "--profile", "plain", "--since", "2999-01-01T00:00:00Z")
    assert (told.code, told.out) == (Exit.DONE, "no request of plain was recorded since 2999-01-01T00:00:00Z\n")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "yes, against plain (9 requests)"),
        ({"pays": False, "baselines": ["a", "b"]}, "no, against a, b (9 requests)"),
        ({"pays": None}, "cannot be told, against plain (9 requests): the interval holds 1"),
        ({"pays": None, "interval": None}, "cannot be told, against plain (9 requests): there is no interval"),
        ({"differences": ["placement", "env"]}, "yes, against plain (9 requests); differs in: placement, env"),
        (
            {"not_compared": {"qa": {"requests": 1, "baseline_requests": 0}}},
            "yes, against plain (9 requests); too few requests to count: qa",
        ),
        (
            {**NOT_TOLD, "reason": "no-baseline", "baselines": [], "not_compared": {"qa": {}}},
            "cannot be told: nothing of the same target was recorded without speculation",
        ),
        (
            {**NOT_TOLD, "reason": "too-few-requests"},
            "cannot be told, against plain: too few requests of a kind, 5 are needed on each side",
        ),
    ],
)
def test_a_verdict_is_in_words(changes: dict[str, Any], said: str) -> None:
    assert verdict({**SPEEDUP, **changes}).plain == said


def test_who_speculated_without_a_rate_is_told_so_and_who_did_not_is_left_out() -> None:
    console = Console(width=400)
    methods = ("none", None, "draft")
    with console.capture() as shown:
        print_verdicts(console, [{"method": method, "speedup": None} for method in methods], ["method"])
        print_verdicts(console, [{"method": "none", "speedup": None}], ["method"])
    said = "cannot be told: no answer had its tokens and their time"
    assert shown.get() == f"\ndoes speculation pay?\n  draft: {said}\n"


def test_figures_have_their_units_and_what_is_not_known_a_dash() -> None:
    console = Console(width=400)
    absent = {"generation_tokens_per_second": None, "acceptance_rate": None, "time_to_first_token_seconds": None}
    items = [
        {"profile": "fast", **ITEM},
        {"profile": "late", **ITEM, "time_to_first_token_seconds": {"p50": 1.25}},
        {"profile": "bare", **ITEM, "speedup": {**SPEEDUP, "interval": None}},
        {"profile": None, **ITEM, **absent, "speedup": None},
    ]
    with console.capture() as shown:
        console.print(stats_table(items, ["profile"]))
    text = shown.get()
    assert cells(text, "fast") == ["fast", "6", "12.3", "91%", "62 ms", "1.83 (1.76 to 1.90)"]
    assert cells(text, "late")[4] == "1.2 s"
    assert cells(text, "bare")[5] == "1.83"
    assert cells(text, "-") == ["-", "6", "-", "-", "-", "-"]


def test_on_a_narrow_terminal_nothing_is_lost_and_names_stay_whole() -> None:
    console = Console(width=80)
    item = {"profile": "gemma-baseline", "method": "ngram-mod", **ITEM}
    with console.capture() as shown:
        console.print(stats_table([item], ["profile", "method"]))
    row = shown.get().split("profile ")[1]
    assert cells(row, "gemma-baseline")[:6] == ["gemma-baseline", "ngram-mod", "6", "12.3", "91%", "62 ms"]
    assert row.partition("62 ms")[2].split() == ["1.83", "(1.76", "to", "1.90)"]
