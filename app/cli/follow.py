"""`paceline logs` and `paceline events`: what is said and what happens, now or as it comes."""

import contextlib
import json
from typing import Annotated, Any

import typer
from rich.console import Console

from app.cli.client import ServiceClient, ServiceProblem, profile_path
from app.cli.event_source import Message, follow
from app.cli.event_text import event_line
from app.cli.options import Profile, Url, open_client
from app.cli.render import make_console

_NEVER_STARTED = "instance-not-found"


def logs(
    profile: Profile,
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="go on with what comes, over restarts of the profile and the service")
    ] = False,
    tail: Annotated[int, typer.Option(min=0, max=2000, help="how many of the last lines")] = 200,
    url: Url = None,
) -> None:
    """Print what a profile's engine prints."""
    with open_client(url) as client, contextlib.suppress(KeyboardInterrupt):
        if not follow_on:
            for line in _last_lines(client, profile, tail):
                typer.echo(line)
            return
        # A stream knows the lives of this run of the service only.
        if client.get(profile_path(profile))["status"]["instance_id"] is None:
            with contextlib.suppress(_NeverStarted):
                for line in _last_lines(client, profile, tail):
                    typer.echo(line)
        notes = make_console(stderr=True)
        stream = follow(client, profile_path(profile, "logs/stream"), on_loss=lambda: _say_lost(notes), tail=tail)
        for message in stream:
            if message is not None:
                _print_output(notes, message)


class _NeverStarted(ServiceProblem):
    """The profile has no life yet, so there are no lines."""


def _last_lines(client: ServiceClient, profile: str, tail: int) -> list[str]:
    """Raises _NeverStarted."""
    try:
        lines: list[str] = client.get(profile_path(profile, "logs"), tail=max(1, tail))["items"]
    except ServiceProblem as problem:
        if problem.document.get("code") == _NEVER_STARTED:
            raise _NeverStarted(problem.document) from problem
        raise
    return lines if tail else []


def _print_output(notes: Console, message: Message) -> None:
    """A line to standard output, as it is; what is said about lines to standard error."""
    if message.name == "message":
        typer.echo(message.data)
    elif message.name == "instance":
        notes.print(f"-- instance {message.document['instance_id']}", style="dim", soft_wrap=True)
    elif message.name == "missed":
        count = message.document["missed"]
        notes.print(f"-- {'some' if count is None else count} lines are no longer kept", style="yellow", soft_wrap=True)


def events(
    types: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="only these, joined by commas, such as instance.state,request.finished"),
    ] = None,
    after: Annotated[
        int | None, typer.Option(metavar="ID", help="begin after this event; else with what comes from now on")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line: id, event, data")] = False,
    url: Url = None,
) -> None:
    """Print what happens, as it happens."""
    console, notes = make_console(), make_console(stderr=True)
    asked = {name: value for name, value in {"types": types, "after": after}.items() if value is not None}
    with open_client(url) as client, contextlib.suppress(KeyboardInterrupt):
        for message in follow(client, "/events", on_loss=lambda: _say_lost(notes), **asked):
            if message is None:
                continue
            if as_json:
                typer.echo(json.dumps(_json(message)))
            else:
                console.print(event_line(message.name, message.document), soft_wrap=True)


def _json(message: Message) -> dict[str, Any]:
    return {
        "id": None if message.id is None else int(message.id),
        "event": message.name,
        "data": message.document,
    }


def _say_lost(notes: Console) -> None:
    notes.print(
        "-- the connection is lost; it is tried again until the service answers", style="yellow", soft_wrap=True
    )
