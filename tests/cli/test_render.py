import io

import pytest
from cli.memory_reports import overfull
from rich.console import Console

from app.cli.render import bytes_text, print_problem, print_report, profiles_table, speeds_table

PROFILE = {"id": "[bold]p", "speculation": {"method": "mtp"}}


def printed(width: int = 200) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, markup=False, highlight=False), text


def test_the_profiles_table_shows_degradations_and_failures_and_no_markup() -> None:
    status = {"state": "ready", "instance_id": "7", "last_failure": "exited: The server exited with code 1."}
    console, text = printed()
    console.print(profiles_table([{**PROFILE, "status": status}], {"7": {"degradations": ["speculation-inactive"]}}))
    row = text.getvalue().splitlines()[1]
    assert row.split("  ")[0] == "[bold]p"
    assert "speculation-inactive" in row
    assert "exited with code 1" in row


def test_what_was_not_reported_is_a_dash_and_zero_is_a_zero() -> None:
    unreported = {"profile_id": "a", "generation_tokens_per_second": None, "draft_tokens": None,
                  "accepted_tokens": None, "acceptance_rate": None}  # fmt: skip
    nothing_kept = {**unreported, "profile_id": "b", "draft_tokens": 4, "accepted_tokens": 0, "acceptance_rate": 0.0}
    console, text = printed()
    console.print(speeds_table([("first", unreported), ("again", nothing_kept)]))
    _, first, second = (line.split() for line in text.getvalue().splitlines())
    assert first == ["a", "first", "-", "-", "-", "-"]
    assert second == ["b", "again", "-", "4", "0", "0%"]


def test_a_report_is_its_verdict_the_picture_and_findings_errors_first_with_the_bytes_of_their_fixes() -> None:
    console, text = printed()
    print_report(console, "p", overfull())
    lines = text.getvalue().splitlines()
    assert lines[0] == "p: refused"
    assert any(line.startswith("CUDA1 [") and line.endswith("GiB too much") for line in lines)
    error, info = (
        lines.index("  error   device-memory  (--force passes it)"),
        lines.index("  info    draft-tokens-clamped"),
    )
    assert error < info
    assert lines[error + 3 : info] == [
        '          fix: shares that fit, frees 9.0 GiB: {"placement": {"tensor_split": [26, 14]}}',
        '          fix: a shorter context, frees 8.0 GiB: {"context": {"size": 8192}}',
    ]
    assert lines[-1] == "  llama-server -m target.gguf"


def test_a_problem_shows_its_typed_members_and_not_its_frame() -> None:
    console, text = printed()
    print_problem(
        console,
        {"type": "urn:x", "status": 422, "code": "c", "detail": "it is wrong", "revision": 3, "backoff": None,
         "problems": [{"field": "target.path", "message": "too short"}]},
    )  # fmt: skip
    assert text.getvalue().splitlines() == [
        "paceline: it is wrong", "  revision: 3", "  target.path: too short",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 << 20, "3 MiB"), (3 << 29, "1.5 GiB"), (-(1 << 30), "-1.0 GiB")],
)
def test_bytes_are_read_as_people_read_them(count: int, text: str) -> None:
    assert bytes_text(count) == text
