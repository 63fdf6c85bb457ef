"""`paceline check -- llama-server …`: a raw command line, understood by the service and then checked as a profile."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from app.cli.client import ServiceClient
from app.cli.exit_codes import Exit
from app.cli.render import make_console, print_report

_GROUPS = (
    ("understood", ("translated", "kept"), "green"),
    ("not said, so llama-server decides", ("implied",), "cyan"),
    ("obsolete or wrong as written", ("renamed", "corrected", "removed", "unexpanded"), "yellow"),
    ("Paceline decides", ("dropped",), "cyan"),
    ("refused", ("refused",), "bold red"),
)
_INDENT = 4
_SAID_WIDTH_MAX = 40


@dataclass(frozen=True, slots=True)
class CheckedCommand:
    """One command line: the profile it came to, the notes on its parts, the report on the profile."""

    profile: Mapping[str, Any]
    notes: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any]

    @property
    def is_refused(self) -> bool:
        """Whether the profile may not be launched, or does not do all that the command line asks."""
        return self.report["verdict"] == "refused" or bool(self.refused)

    @property
    def refused(self) -> list[str]:
        """What of the command line the profile does without."""
        return [str(note["said"]) for note in self.notes if note["kind"] == "refused"]

    def document(self) -> dict[str, Any]:
        """As JSON data."""
        return {"profile": self.profile, "notes": self.notes, "report": self.report}


class CheckSyntax(TyperCommand):
    """The syntax of `check`, which says what is missing before a command line that was pasted as it is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever. Raises BadParameter where flags of another program would be read as ours."""
        for number, word in enumerate(args):
            if word == "--":
                break
            if Path(word).name == "llama-server" and any(flag.startswith("-") for flag in args[number:]):
                raise typer.BadParameter(f"put -- before {word}: paceline check -- {word} ...", ctx)
        return super().parse_args(ctx, args)


def check_command(
    client: ServiceClient, command: str | Sequence[str], where: Mapping[str, Any]
) -> list[CheckedCommand]:
    """Import without storing, then check each profile, on the machine that `where` names if any.

    Raises ServiceProblem where no profile can be made of it.
    """
    imported = client.post("/profiles/import", {"command": command})["profiles"]
    return [
        CheckedCommand(entry["profile"], entry["notes"], client.post("/check", {"profile": entry["profile"], **where}))
        for entry in imported
    ]


def show_commands(asked: Sequence[CheckedCommand], *, as_json: bool) -> None:
    """Print the notes and the report of each. Exits with REFUSED where one is."""
    console = make_console()
    for checked in asked:
        if as_json:
            typer.echo(json.dumps(checked.document(), indent=2))
        else:
            print_notes(console, checked.notes)
            print_report(console, str(checked.profile["id"]), checked.report, refused=checked.refused)
    if any(checked.is_refused for checked in asked):
        raise typer.Exit(Exit.REFUSED)


def read_command_file(path: Path) -> str:
    """The text of a file with commands. Raises BadParameter."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise typer.BadParameter(f"{path} cannot be read: {failure}", param_hint="--command-file") from failure


def print_notes(console: Console, notes: Sequence[Mapping[str, Any]]) -> None:
    """What became of each part of a command line, grouped by what it means for its writer."""
    for title, kinds, style in _GROUPS:
        chosen = [note for note in notes if note["kind"] in kinds]
        if not chosen:
            continue
        console.print(Text(f"  {title}", style=style))
        width = min(_SAID_WIDTH_MAX, max(len(note["said"]) for note in chosen))
        for note in chosen:
            console.print(f"{' ' * _INDENT}{note['said']:<{width}}  {_meaning(note)}".rstrip(), soft_wrap=True)


def _meaning(note: Mapping[str, Any]) -> str:
    field, value, message = note["field"], note["value"], note["message"]
    if field is None or value is None:
        return str(message or (f"{field} is left open" if field else ""))
    if isinstance(value, bool):
        value = str(value).lower()
    shown = shlex.join(map(str, value)) if isinstance(value, list) else value
    said = f"extra_args: {shown}" if field == "extra_args" else f"{field} = {shown}"
    return f"{said} ({message})" if message else said
