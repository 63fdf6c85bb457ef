"""The commands. Each asks the service and prints; all but `serve` and `demo` are clients of its API."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app import __version__
from app.cli.client import ServiceClient, profile_path
from app.cli.command_check import CheckSyntax, check_command, read_command_file, show_commands
from app.cli.diagnose import diagnose
from app.cli.exit_codes import Exit
from app.cli.failures import failing_with
from app.cli.follow import events, logs
from app.cli.inventory import devices, inspect, models
from app.cli.keys import keys_commands
from app.cli.loading import print_outcome, start_profile
from app.cli.options import AsJson, OtherMachine, Profile, Url, open_client, read_machine
from app.cli.profile_document import check_file, names_a_file, refuse_model_file
from app.cli.ps import ps
from app.cli.render import make_console, print_last_lines, print_report, profiles_table
from app.cli.settings_text import settings_help
from app.cli.stats import stats
from app.cli.suggest import suggest
from app.settings import load_settings

_EXIT_CODES = "Exit codes:\n\n\b\n" + "\n".join(f"  {code.value}  {code.meaning}" for code in Exit)


def command_line() -> typer.Typer:
    """The whole command line."""
    commands = typer.Typer(
        help="Paceline: launch profiles, placement checks and a faithful relay in front of llama-server.",
        epilog=_EXIT_CODES,
        rich_markup_mode=None,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    commands.callback()(_options)
    commands.command(epilog=f"\b\nSettings, as environment variables or in a .env file [default]:\n{settings_help()}")(
        serve
    )
    commands.command(cls=CheckSyntax)(failing_with(Exit.USAGE)(check))
    others: tuple[Callable[..., None], ...] = (
        *(suggest, start, stop, restart, status, ps, stats, logs, events, failing_with(Exit.USAGE)(diagnose)),
        *(devices, models, inspect, demo),
    )
    for command in others:
        commands.command()(command)
    commands.add_typer(keys_commands(), name="keys")
    return commands


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit(Exit.DONE)


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and end", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


def serve(
    host: Annotated[str | None, typer.Option(help="instead of PACELINE_HOST")] = None,
    port: Annotated[int | None, typer.Option(help="instead of PACELINE_PORT")] = None,
) -> None:
    """Run the service until a signal ends it."""
    # The service is most of what there is to import; clients do without it.
    from app.cli.serve import serve as run  # noqa: PLC0415

    given = {"host": host, "port": port}
    run(load_settings(**{name: value for name, value in given.items() if value is not None}))


def check(
    profile: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROFILE | -- llama-server ...",
            help="an id, the path of a YAML or JSON file, or a raw command line after --",
            show_default=False,
        ),
    ] = None,
    command_file: Annotated[
        Path | None, typer.Option("--command-file", help="a file with llama-server command lines, such as a script")
    ] = None,
    machine: OtherMachine = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say what a launch would do: findings, fixes, command. Exit status 0 fits, 1 refused, 2 error."""
    words = profile or []
    if bool(words) == bool(command_file):
        raise typer.BadParameter("name one profile, or a command line after --, or --command-file")
    if words:
        refuse_model_file(words[0])
    where = read_machine(machine)
    with open_client(url) as client:
        if command_file is not None or len(words) > 1:
            asked = check_command(client, read_command_file(command_file) if command_file else words, where)
            show_commands(asked, as_json=as_json)
            return
        reports = _reports(client, words[0], where)
    console = make_console()
    for title, report in reports:
        if as_json:
            typer.echo(json.dumps(report, indent=2))
        else:
            print_report(console, title, report)
    if any(report["verdict"] == "refused" for _, report in reports):
        raise typer.Exit(Exit.REFUSED)


def _reports(client: ServiceClient, profile: str, where: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if names_a_file(profile):
        return [(profile, report) for report in check_file(client, Path(profile), where)]
    return [(profile, client.post(profile_path(profile, "check"), where or None))]


def start(
    profile: Profile,
    force: Annotated[bool, typer.Option("--force", help="pass findings that are a judgement")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not wait until it is ready")] = False,
    url: Url = None,
) -> None:
    """Check and launch a profile; follow its load."""
    console = make_console()
    with open_client(url) as client:
        instance = start_profile(client, console, profile, force=force, wait=not no_wait)
    if not print_outcome(console, instance):
        print_last_lines(console, (instance["failure"] or {}).get("last_lines", []))
        raise typer.Exit(Exit.REFUSED)


def stop(
    profile: Profile,
    drain: Annotated[
        float | None, typer.Option(min=0, help="seconds that running requests may go on; else PACELINE_DRAIN_SECONDS")
    ] = None,
    url: Url = None,
) -> None:
    """Let requests finish, then stop a profile."""
    with open_client(url) as client:
        chosen = {} if drain is None else {"drain_seconds": drain}
        instance = client.post(profile_path(profile, "stop"), wait=True, **chosen)
    make_console().print(f"{profile} is {instance['state']}")


def restart(
    profile: Profile,
    force: Annotated[bool, typer.Option("--force", help="pass findings that are a judgement")] = False,
    drain: Annotated[
        float | None, typer.Option(min=0, help="seconds that running requests may go on; else PACELINE_DRAIN_SECONDS")
    ] = None,
    url: Url = None,
) -> None:
    """Stop a profile and start it anew, as it stands now; one that the check refuses goes on serving."""
    with open_client(url) as client:
        chosen = {} if drain is None else {"drain_seconds": drain}
        instance = client.post(profile_path(profile, "restart"), wait=True, force=force, **chosen)
    console = make_console()
    if not print_outcome(console, instance):
        raise typer.Exit(Exit.REFUSED)


def status(url: Url = None, as_json: AsJson = False) -> None:
    """Show profiles, engine and bad profile files."""
    with open_client(url) as client:
        version, ready = client.get("/version"), client.readiness()
        profiles, instances = client.get("/profiles")["items"], client.get("/instances", limit=200)["items"]
    if as_json:
        typer.echo(json.dumps({"version": version, "ready": ready, "profiles": profiles}, indent=2))
        return
    console = make_console()
    console.print(f"Paceline {version['version']} at {client.url}: {ready['status']}", soft_wrap=True)
    if engine := version["engine"]:
        devices = ", ".join(engine["devices"]) or "no devices, so the host computes"
        console.print(f"engine {engine['kind']}, build {engine['build']}: {devices}", soft_wrap=True)
    else:
        console.print(f"no engine: {version['engine_problem']}", style="red", soft_wrap=True)
    if ready["database"] != "ok":
        console.print(f"database: {ready['database']}", style="red", soft_wrap=True)
    for problem in ready["profile_files"]:
        line = "" if problem["line"] is None else f":{problem['line']}"
        console.print(f"profile file {problem['file']}{line}: {problem['message']}", style="yellow", soft_wrap=True)
    for finding in ready["findings"]:
        console.print(f"{finding['rule']}: {finding['message']}", style="yellow", soft_wrap=True)
    if profiles:
        console.print(profiles_table(profiles, {instance["id"]: instance for instance in instances}))
    else:
        console.print("no profiles yet: POST /profiles, or a file in PACELINE_PROFILES_DIR")


def demo(
    folder: Annotated[Path, typer.Option(help="where its model and its database go")] = Path(".paceline/demo"),
    end: Annotated[bool, typer.Option("--exit", help="end after the table instead of serving on")] = False,
) -> None:
    """Show it all on a small real model."""
    from app.cli.demo.walk import run_demo  # noqa: PLC0415

    run_demo(make_console(), folder.absolute(), serve_on=not end)
