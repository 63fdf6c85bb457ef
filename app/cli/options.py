"""Options that many commands share, and the client that they lead to."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.client import ServiceClient, service_url
from app.cli.profile_document import names_a_file
from app.settings import load_settings


def _not_a_file(context: typer.Context, profile: str) -> str:
    if names_a_file(profile):
        folder = load_settings().profiles_folder
        raise typer.BadParameter(
            f"{context.info_name} takes an id: put the file into {folder}, and {context.info_name} the id in it"
        )
    return profile


Profile = Annotated[
    str, typer.Argument(metavar="PROFILE", help="the id of a profile", show_default=False, callback=_not_a_file)
]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="PACELINE_URL", help="the service; else PACELINE_HOST and PACELINE_PORT say where"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print the API's JSON")]
OtherMachine = Annotated[
    Path | None,
    typer.Option(
        "--machine", metavar="FILE", help="for another machine: JSON as `paceline devices --json` prints it there"
    ),
]


def open_client(url: str | None) -> ServiceClient:
    """A client of the service at `url`, else of the one that the settings describe."""
    settings = load_settings()
    return ServiceClient(url or service_url(settings), settings.read_admin_key())


def read_machine(path: Path | None) -> dict[str, Any]:
    """The member of a question that names the machine; empty where it is about this one. Raises BadParameter."""
    if path is None:
        return {}
    try:
        machine = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as failure:
        raise typer.BadParameter(f"{path} cannot be read: {failure}", param_hint="--machine") from failure
    if not isinstance(machine, dict) or not machine.keys() & {"devices", "host"}:
        raise typer.BadParameter(
            f"{path} is no machine: it has neither `devices` nor `host`, as `paceline devices --json` prints them",
            param_hint="--machine",
        )
    return {"machine": machine}
