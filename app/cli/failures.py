"""What a command that fails prints, and how it ends."""

import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import typer

from app.cli.client import ServiceProblem, ServiceUnreachable
from app.cli.exit_codes import Exit
from app.cli.render import make_console, print_problem
from app.errors import PacelineError, SettingsInvalid

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def print_failure(failure: PacelineError) -> Exit:
    """Its text, never a traceback. Returns the code that belongs to it."""
    console = make_console(stderr=True)
    if isinstance(failure, ServiceProblem):
        print_problem(console, failure.document)
        return Exit.REFUSED
    console.print(f"paceline: {failure.message}", style="red", soft_wrap=True)
    codes = {SettingsInvalid: Exit.USAGE, ServiceUnreachable: Exit.UNREACHABLE}
    return codes.get(type(failure), Exit.REFUSED)


def failing_with(
    code: Exit,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """A command whose every failure ends with one code: scripts read the others as its answer."""

    def decorate(command: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(command)
        def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            try:
                return command(*args, **kwargs)
            except (typer.Exit, typer.Abort, typer.BadParameter):
                raise
            except PacelineError as failure:
                print_failure(failure)
            except Exception:
                traceback.print_exc(file=sys.stderr)
            raise typer.Exit(code)

        return run

    return decorate
