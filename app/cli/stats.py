"""`paceline stats`: what was recorded, summed up, and whether speculation pays."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from app.cli.client import profile_path
from app.cli.options import AsJson, Url, open_client
from app.cli.render import make_console
from app.cli.stats_table import print_verdicts, stats_table

DEFAULT_GROUPS = "profile,method"
_SPAN = re.compile(r"(\d{1,6})(min|h|d)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}
_BEGINS_AS_DATE = re.compile(r"\d{4}-")


def _since(text: str | None) -> str | None:
    """The RFC 3339 time that is meant; whether one that was typed is right, the service says."""
    if text is None or _BEGINS_AS_DATE.match(text):
        return text
    span = _SPAN.fullmatch(text)
    try:
        if span is None:
            raise ValueError
        moment = datetime.now(UTC) - timedelta(**{_UNITS[span[2]]: int(span[1])})
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no span such as 90min, 24h or 7d, and no time such as 2026-01-31T12:00:00Z"
        ) from None
    return moment.isoformat(timespec="seconds")


def stats(
    by: Annotated[str, typer.Option(metavar="NAMES", help="what to group by, joined by commas")] = DEFAULT_GROUPS,
    profile: Annotated[str | None, typer.Option(metavar="PROFILE", help="requests of this profile only")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="SPAN|TIME", help="the last 24h, 7d or 90min, or since an RFC 3339 time", callback=_since),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Sum up what was recorded: requests, tokens/s, acceptance, and whether speculation pays."""
    names = list(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    chosen = {name: value for name, value in (("profile", profile), ("since", since)) if value is not None}
    with open_client(url) as client:
        found = client.get("/stats", group_by=",".join(names), **chosen)
        if profile is not None and not found["items"]:
            # A name that is misspelt has nothing either; the service knows what may have been meant.
            client.get(profile_path(profile))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = make_console()
    if not found["items"]:
        of, after = f" of {profile}" if profile else "", f" since {since}" if since else ""
        console.print(f"no request{of} was recorded{after}", soft_wrap=True)
        return
    if not console.is_terminal:
        # A file has room for every column.
        console.width = max(console.width, 400)
    console.print(stats_table(found["items"], names))
    if "profile" in names:
        print_verdicts(console, found["items"], names)
    else:
        more = ",".join(["profile", *names])
        console.print(f"\nwhether speculation pays is told by profile: --by {more}", soft_wrap=True)
