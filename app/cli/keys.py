"""`paceline keys`: who may use the service."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

from app.access.key_file import ensure_key_file
from app.cli.options import AsJson, Url, open_client
from app.cli.render import make_console


def keys_commands() -> typer.Typer:
    """The commands below `paceline keys`."""
    commands = typer.Typer(help="List, make and revoke keys.", rich_markup_mode=None, no_args_is_help=True)
    commands.command("list")(list_keys)
    commands.command("make")(make_key)
    commands.command("revoke")(revoke_key)
    commands.command("file")(key_file)
    return commands


def list_keys(url: Url = None, as_json: AsJson = False) -> None:
    """Show the keys that there are, without their secrets."""
    with open_client(url) as client:
        keys = client.get("/keys")["items"]
    if as_json:
        typer.echo(json.dumps(keys, indent=2))
    elif keys:
        make_console().print(keys_table(keys, datetime.now(UTC)))
    else:
        make_console().print("there are no keys: everything on this machine may use the service", soft_wrap=True)


def make_key(
    name: Annotated[str, typer.Argument(help="what to call it: requests are recorded with it", show_default=False)],
    admin: Annotated[bool, typer.Option("--admin", help="may do everything; else inference only")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="may read /metrics and /health, and nothing else")] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="ID", help="may use this profile only; say it again for more"),
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=36500, help="days until it expires; else it does not")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, which is shown this once."""
    if admin and metrics:
        raise typer.BadParameter("a key is for everything or for metrics: leave --admin or --metrics out")
    kind = "admin" if admin else "metrics" if metrics else "inference"
    wanted: dict[str, Any] = {"name": name, "kind": kind, "profiles": profile or None}
    if days is not None:
        wanted["expires_at"] = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    with open_client(url) as client:
        made = client.post("/keys", wanted)
    if as_json:
        typer.echo(json.dumps(made, indent=2))
        return
    typer.echo(made["secret"])
    note = "keep it: it is not shown again"
    if admin:
        note += "; `paceline` shows it where PACELINE_ADMIN_KEY holds it"
    make_console(stderr=True).print(note, style="dim", soft_wrap=True)


def revoke_key(
    name: Annotated[str, typer.Argument(help="the name of the key", show_default=False)], url: Url = None
) -> None:
    """Revoke a key: from now on nobody gets in with it."""
    with open_client(url) as client:
        client.delete(f"/keys/{quote(name, safe='')}")
    make_console().print(f"{name} is revoked", soft_wrap=True)


def key_file(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="where the key goes", show_default=False)],
    group: Annotated[bool, typer.Option("--group", help="the file's group may read it, too")] = False,
) -> None:
    """Put a new key into a file, for a setting that ends in KEY_FILE; one that is there already stays as it is."""
    made = ensure_key_file(path, group_reads=group)
    make_console(stderr=True).print(f"{path}: {'a new key' if made else 'there already'}", style="dim", soft_wrap=True)


def keys_table(keys: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    """Every key with what it may and until when; times are those of this machine."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("key", "may", "profiles", "expires", "last used"):
        table.add_column(column, overflow="fold")
    for key in keys:
        is_admin, is_for_metrics = key["kind"] == "admin", key["kind"] == "metrics"
        profiles = "all" if key["profiles"] is None else ", ".join(key["profiles"])
        table.add_row(
            key["name"],
            "everything" if is_admin else key["kind"],
            "-" if is_for_metrics else profiles,
            _expiry(key["expires_at"], now),
            _day(key["last_used_at"]) or "-",
        )
    return table


def _expiry(text: str | None, now: datetime) -> str:
    if text is None:
        return "never"
    return f"expired {_day(text)}" if datetime.fromisoformat(text) <= now else _day(text)


def _day(text: str | None) -> str:
    return "" if text is None else datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
