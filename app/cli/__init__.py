"""The `paceline` command."""

import sys


def main() -> None:
    """Run the command line. Every named error becomes its text and an exit code, never a traceback."""
    # Imported here, so that importing the package stays free.
    from app.cli.client import ServiceProblem, ServiceUnreachable  # noqa: PLC0415
    from app.cli.commands import command_line  # noqa: PLC0415
    from app.cli.exit_codes import Exit  # noqa: PLC0415
    from app.cli.render import make_console, print_problem  # noqa: PLC0415
    from app.errors import PacelineError, SettingsInvalid  # noqa: PLC0415

    console = make_console(stderr=True)
    try:
        command_line()(prog_name="paceline")
    except ServiceProblem as problem:
        print_problem(console, problem.document)
        sys.exit(Exit.REFUSED)
    except PacelineError as error:
        console.print(f"paceline: {error.message}", style="red", soft_wrap=True)
        codes = {SettingsInvalid: Exit.USAGE, ServiceUnreachable: Exit.UNREACHABLE}
        sys.exit(codes.get(type(error), Exit.REFUSED))
