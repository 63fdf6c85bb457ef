"""What the command line prints: reports, problems, profiles, requests. Values of the API in, text out."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.memory_picture import print_memory

_STYLES = {
    "error": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "fits": "green",
    "fits_with_warnings": "yellow",
    "refused": "bold red",
    "ready": "green",
    "failed": "red",
}
# What every problem has; the rest are the typed members of this one.
_PROBLEM_FRAME = frozenset({"type", "title", "status", "detail", "instance", "code", "message", "param", "error"})
_WORST_FIRST = ("error", "warning", "info")
_NOT_KNOWN = "-"
_INDENT = " " * 10


def make_console(*, stderr: bool = False) -> Console:
    """A console that prints texts of others as they are: no markup, no guessed colours."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def print_report(console: Console, title: str, report: Mapping[str, Any], *, refused: Sequence[str] = ()) -> None:
    """A placement report: verdict, the picture of its memory, findings with their fixes, the command.

    `refused` are words of a command line that its profile does without, which no report knows of.
    """
    verdict = "refused" if refused else str(report["verdict"])
    told = f"refused: {', '.join(refused)}" if refused else verdict.replace("_", " ")
    console.print(Text(f"{title}: ").append(told, style=_STYLES.get(verdict, "")), soft_wrap=True)
    print_memory(console, report)
    print_findings(console, report["findings"])
    if report["env"]:
        console.print(f"environment: {' '.join(f'{name}={value}' for name, value in report['env'].items())}")
    console.print("command:")
    # Never wrapped: it is there to be copied.
    console.print(f"  {shlex.join(report['argv'])}", soft_wrap=True)


def print_findings(console: Console, findings: Sequence[Mapping[str, Any]]) -> None:
    """Every finding, errors first, with what was compared, and its fixes as patches of the profile."""
    for finding in sorted(findings, key=lambda finding: _WORST_FIRST.index(finding["severity"])):
        severity = str(finding["severity"])
        head = Text("  ").append(f"{severity:<8}", style=_STYLES.get(severity, "")).append(finding["rule"], "bold")
        if finding["overridable"] and severity == "error":
            head.append("  (--force passes it)")
        console.print(head)
        _indented(console, finding["message"])
        if finding["expected"] or finding["observed"]:
            source = f" (known from {finding['evidence']})" if finding["evidence"] else ""
            _indented(console, f"expected: {finding['expected']}; observed: {finding['observed']}{source}")
        for fix in finding["fixes"]:
            effect = f", frees {bytes_text(fix['effect_bytes'])}" if fix["effect_bytes"] else ""
            # The patch is there to be copied, so it is never broken.
            console.print(f"{_INDENT}fix: {fix['description']}{effect}: {json.dumps(fix['patch'])}", soft_wrap=True)


def print_problem(console: Console, document: Mapping[str, Any]) -> None:
    """A problem of the service: its sentence, then its typed members."""
    report = document.get("report")
    # The sentence of a refused launch repeats every finding, which stand below in full.
    detail = str(document.get("detail", ""))
    if report:
        detail = detail.partition(": [")[0]
    console.print(f"paceline: {detail}", style="red", soft_wrap=True)
    if report:
        print_report(console, "check", report)
    for name, value in document.items():
        if name in _PROBLEM_FRAME or name == "report" or value in (None, [], {}):
            continue
        if name == "problems":
            for problem in value:
                # The sentence as a rule names them all.
                if problem["message"] not in detail:
                    console.print(f"  {problem['field']}: {problem['message']}", soft_wrap=True)
        elif name == "last_lines":
            print_last_lines(console, value)
        else:
            shown = value if isinstance(value, str | int | float) else json.dumps(value)
            console.print(f"  {name}: {shown}", soft_wrap=True)


def print_last_lines(console: Console, lines: Sequence[str]) -> None:
    """The end of what an engine said."""
    if lines:
        console.print("  the engine's last lines:")
    for line in lines:
        console.print(f"    {line}", soft_wrap=True)


def profiles_table(profiles: Sequence[Mapping[str, Any]], instances: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every profile with what becomes of it. `instances` are those known, by id."""
    table = _table("profile", "state", "method", "degradations", "last failure")
    for profile in profiles:
        status = profile["status"]
        instance = instances.get(status["instance_id"] or "", {})
        state = str(status["state"])
        table.add_row(
            profile["id"],
            Text(state, style=_STYLES.get(state, "")),
            profile["speculation"]["method"],
            ", ".join(instance.get("degradations", ())) or _NOT_KNOWN,
            status["last_failure"] or _NOT_KNOWN,
        )
    return table


def speeds_table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Recorded requests side by side, each under a label. What was not reported stays a dash."""
    table = _table("profile", "request", "tokens/s", "drafted", "accepted", "acceptance rate")
    for label, row in rows:
        rate, share = row["generation_tokens_per_second"], row["acceptance_rate"]
        table.add_row(
            row["profile_id"],
            label,
            _NOT_KNOWN if rate is None else f"{rate:.1f}",
            _count(row["draft_tokens"]),
            _count(row["accepted_tokens"]),
            _NOT_KNOWN if share is None else f"{share:.0%}",
        )
    return table


def bytes_text(count: int) -> str:
    """Bytes as people read them: 1.5 GiB."""
    size = float(abs(count))
    sign = "-" if count < 0 else ""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{sign}{size:.0f} {unit}"
        size /= 1024
    return f"{sign}{size:.1f} GiB"


def _indented(console: Console, text: str) -> None:
    """On a terminal text keeps clear of the rule ids; a file gets it in one line."""
    width = max(40, console.width - len(_INDENT)) if console.is_terminal else len(text) + 1
    for line in Text(text).wrap(console, width):
        console.print(f"{_INDENT}{line.plain.rstrip()}", soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _count(value: int | None) -> str:
    return _NOT_KNOWN if value is None else str(value)
