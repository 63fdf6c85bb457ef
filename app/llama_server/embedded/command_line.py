"""Reads a command line against the flag table. Errors are worded as llama-server words them."""

from collections.abc import Iterator, Mapping, Sequence

from app.llama_server.embedded.flag import CommandLineRejected, Flag, Params, Setting, ValueRejected
from app.llama_server.embedded.flag_table import FLAGS, REFUSED
from app.llama_server.embedded.help import entry

KEY_VARIABLE = "LLAMA_API_KEY"


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> list[Setting]:
    """The settings in the order of the command line, those of the environment before them.

    Raises CommandLineRejected for an unknown, refused or incomplete flag and for a bad value.
    """
    flags = {name: flag for flag in FLAGS for name in (*flag.names, *flag.off)}
    refused = {name: each.reason for each in REFUSED for name in each.names}
    settings = list(_from_environment(flags, environment))
    given = iter(arguments)
    for argument in given:
        name = argument.replace("_", "-") if argument.startswith("--") else argument
        if name in refused:
            raise CommandLineRejected(f"error: the embedded engine cannot honour {name}: {refused[name]}")
        if name not in flags:
            raise CommandLineRejected(f"error: invalid argument: {argument}")
        settings.append(_setting(flags[name], name, given))
    return settings


def put(settings: Sequence[Setting], params: Params) -> None:
    """Writes the settings into the parameters, in their order. Raises CommandLineRejected."""
    for setting in settings:
        try:
            setting.flag.put(params, setting.value)
        except (ValueError, OverflowError, AttributeError) as error:
            raise rejected_value(setting.flag, setting.name, str(error)) from error


def rejected_value(flag: Flag, name: str, why: str) -> CommandLineRejected:
    """What is wrong with a value, and the help of its flag."""
    return CommandLineRejected(
        f'error while handling argument "{name}": {why}\n\nusage:\n{entry(flag)}\n\nto show complete usage, run with -h'
    )


def _from_environment(flags: Mapping[str, Flag], environment: Mapping[str, str]) -> Iterator[Setting]:
    if environment.get(KEY_VARIABLE):
        flag = flags["--api-key"]
        yield Setting(flag, KEY_VARIABLE, flag.read(environment[KEY_VARIABLE]))


def _setting(flag: Flag, name: str, given: Iterator[str]) -> Setting:
    if not flag.takes_value:
        return Setting(flag, name, name in flag.names)
    text = next(given, None)
    if text is None:
        raise rejected_value(flag, name, "expected value for argument")
    try:
        return Setting(flag, name, flag.read(text))
    except ValueRejected as error:
        raise rejected_value(flag, name, str(error)) from error
    except (ValueError, OverflowError) as error:
        raise rejected_value(flag, name, f"invalid value '{text}'") from error
