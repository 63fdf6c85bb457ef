"""`paceline suggest TARGET [DRAFT]`: profiles for these files on this machine, ready to be kept."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
import yaml

from app.cli.exit_codes import Exit
from app.cli.memory_picture import print_memory
from app.cli.options import AsJson, OtherMachine, Url, open_client, read_machine
from app.cli.render import make_console, print_findings
from app.profiles.profile import parse_profile


def suggest(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="a path in the model folders", show_default=False)],
    draft: Annotated[str | None, typer.Argument(metavar="DRAFT", help="a draft model", show_default=False)] = None,
    machine: OtherMachine = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say which profiles would fit and run best, ranked."""
    files = {"target": target} if draft is None else {"target": target, "draft": draft}
    question = {**files, **read_machine(machine)}
    with open_client(url) as client:
        found = client.post("/suggest", question)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        console = make_console()
        for number, item in enumerate(found["items"], start=1):
            console.print(f"{number}. {item['reason']}", style="bold", soft_wrap=True)
            print_memory(console, item["report"])
            typer.echo(f"{document(item['profile'])}")
        if not found["items"]:
            console.print("nothing is suggested")
        print_findings(console, found["findings"])
    if not found["items"]:
        raise typer.Exit(Exit.REFUSED)


def document(profile: Mapping[str, Any]) -> str:
    """A profile as a YAML document that a profiles folder takes: what is not a default."""
    short = parse_profile(profile).model_dump(mode="json", exclude_defaults=True)
    return f"---\n{yaml.safe_dump(short, sort_keys=False, allow_unicode=True)}"
