"""`paceline ps`: the engines that run, once or as they change."""

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.cli.board import Board
from app.cli.client import ServiceClient
from app.cli.event_source import follow
from app.cli.instances_table import instances_table
from app.cli.options import AsJson, Url, open_client
from app.cli.render import make_console

# What a board acts on. Progress of a load and requests change what it shows of an instance.
_TYPES = "instance.state,instance.load_progress,instance.degraded,request.finished"


def ps(
    everything: Annotated[bool, typer.Option("--all", "-a", help="also those that were stopped")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="show them as they change, until Ctrl-C")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest instance of each profile: those that run, and those that failed."""
    console = make_console()
    with open_client(url) as client:
        board = Board(client, everything=everything)
        if not watch:
            board.look()
            _print(console, board, as_json=as_json)
            return
        with contextlib.suppress(KeyboardInterrupt):
            if as_json or not console.is_terminal:
                _print_changes(client, console, board, as_json=as_json)
            else:
                _show_live(client, console, board)


def _print_changes(client: ServiceClient, console: Console, board: Board, *, as_json: bool) -> None:
    """For files and programs: the whole picture again at each change."""
    for message in follow(client, "/events", types=_TYPES, on_loss=board.lose):
        if board.hear(message):
            _print(console, board, as_json=as_json, in_one_line=True)


def _show_live(client: ServiceClient, console: Console, board: Board) -> None:
    with Live(get_renderable=lambda: _picture(board), console=console, refresh_per_second=4) as live:
        for message in follow(client, "/events", types=_TYPES, on_loss=board.lose):
            if board.hear(message):
                live.refresh()


def _picture(board: Board) -> RenderableType:
    if board.is_lost:
        return Group(_table(board), Text("the connection is lost; it is tried again", style="yellow"))
    return _table(board)


def _table(board: Board) -> RenderableType:
    if not board.shown:
        return Text("nothing runs: `paceline start PROFILE` starts one")
    return instances_table(board.shown, datetime.now(UTC))


def _print(console: Console, board: Board, *, as_json: bool, in_one_line: bool = False) -> None:
    if as_json:
        shown: Mapping[str, object] = {"items": board.shown}
        typer.echo(json.dumps(shown, indent=None if in_one_line else 2))
        return
    if not console.is_terminal:
        # A file has room for every column.
        console.width = max(console.width, 400)
    console.print(_table(board))
