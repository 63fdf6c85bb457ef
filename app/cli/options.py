"""Options that many commands share, and the client that they lead to."""

from typing import Annotated

import typer

from app.cli.client import ServiceClient, service_url
from app.settings import load_settings

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="PACELINE_URL", help="the service; else PACELINE_HOST and PACELINE_PORT say where"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print the API's JSON")]


def open_client(url: str | None) -> ServiceClient:
    """A client of the service at `url`, else of the one that the settings describe."""
    settings = load_settings()
    return ServiceClient(url or service_url(settings), settings.read_admin_key())
