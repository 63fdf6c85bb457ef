"""The `paceline` command."""

import sys


def main() -> None:
    """Run the command line. Every named error becomes its text and an exit code, never a traceback."""
    # Imported here, so that importing the package stays free.
    from app.cli.commands import command_line  # noqa: PLC0415
    from app.cli.failures import print_failure  # noqa: PLC0415
    from app.errors import PacelineError  # noqa: PLC0415

    try:
        command_line()(prog_name="paceline")
    except PacelineError as failure:
        sys.exit(print_failure(failure))
