"""`paceline diagnose`: what is wrong with an instance now."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from app.cli.client import ServiceClient, ServiceProblem, profile_path
from app.cli.exit_codes import Exit
from app.cli.options import AsJson, Url, open_client
from app.cli.render import make_console, print_findings
from app.errors import InstanceNotFound
from app.identifiers import parse_id

_WRONG = frozenset({"error", "warning"})


def diagnose(
    subject: Annotated[
        str,
        typer.Argument(metavar="PROFILE|INSTANCE", help="the id of a profile or of an instance", show_default=False),
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a running engine, and what helps. Exit status 0 nothing, 1 something, 2 error."""
    with open_client(url) as client:
        instance = _instance(client, subject)
        answer = client.get(f"/instances/{instance['id']}/diagnosis")
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print_diagnosis(make_console(), instance, answer["items"])
    if any(finding["severity"] in _WRONG for finding in answer["items"]):
        raise typer.Exit(Exit.REFUSED)


def _instance(client: ServiceClient, subject: str) -> Any:
    """The instance of that id, else the newest one of the profile. Raises InstanceNotFound."""
    if parse_id(subject) is not None:
        try:
            return client.get(f"/instances/{subject}")
        except ServiceProblem as problem:
            # A profile may have such an id, too.
            if problem.document.get("status") != 404:
                raise
    client.get(profile_path(subject))
    newest = client.get("/instances", profile=subject, limit=1)["items"]
    if not newest:
        raise InstanceNotFound(f"{subject} has not been started yet: `paceline start {subject}`")
    return newest[0]


def _print_diagnosis(console: Console, instance: Any, findings: list[Any]) -> None:
    wrong = sum(finding["severity"] in _WRONG for finding in findings)
    told = {0: "nothing is wrong", 1: "1 finding"}.get(wrong, f"{wrong} findings")
    style = "yellow" if wrong else "green"
    console.print(
        f"{instance['profile_id']} is {instance['state']} (instance {instance['id']}): {told}",
        style=style,
        soft_wrap=True,
    )
    print_findings(console, findings)
