"""The program `python -m app.llama_server.embedded`."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from app.llama_server.embedded.command_line import parse, put
from app.llama_server.embedded.flag import CommandLineRejected, Params
from app.llama_server.embedded.help import help_text
from app.llama_server.embedded.stopping import stop, wait_for_signal

_MIB = 1024 * 1024
_DEFAULT_PORT = 8080
_AUTOMATIC = -1
_ERRORS_LOGGED = 1


def main(arguments: Sequence[str]) -> int:
    """Answers a question, or serves. Returns an exit code, unless a signal ends the process first."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it loads, SIGINT ends it as SIGTERM does
    if answer(arguments):
        return 0
    try:
        settings = parse(arguments, os.environ)
        package = importlib.import_module("xllamacpp")
        params = defaults(package)
        put(settings, params)
    except CommandLineRejected as error:
        print(error.message, file=sys.stderr)
        return 1
    if not params.model.path:
        print("error: the embedded engine is no router: name a model with --model", file=sys.stderr)
        return 1
    servers = load(package, params)
    if servers:
        wait_for_signal()
        stop(servers)
    return 1


def answer(arguments: Sequence[str]) -> bool:
    """Answers `--help`, `--version` and `--list-devices`; whether one of them was asked."""
    for argument in arguments:
        if argument in ("-h", "--help", "--usage"):
            print(help_text(), end="")
        elif argument == "--version":
            print(version_text(), file=sys.stderr)
        elif argument == "--list-devices":
            print(device_text(importlib.import_module("xllamacpp").get_device_info()))
        else:
            continue
        return True
    return False


def version_text() -> str:
    """Without loading the package: `--version` is asked often."""
    from importlib.metadata import version  # noqa: PLC0415 - costs a fifth of the start

    return f"version: embedded engine (xllamacpp {version('xllamacpp')})"


def device_text(devices: Sequence[dict[str, Any]]) -> str:
    """llama-server's list: every device but the processors, memory in MiB."""
    lines = [
        f"  {device['name']}: {device['description']} ({device['memory_total'] // _MIB} MiB, "
        f"{device['memory_free'] // _MIB} MiB free)"
        for device in devices
        if not device["type"].name.endswith("_TYPE_CPU")
    ]
    return "\n".join(["Available devices:", *(lines or ["  (none)"])])


def defaults(package: Any) -> Params:
    """The package's parameters, with llama-server's defaults where they differ."""
    params = package.CommonParams()
    params.port = _DEFAULT_PORT
    params.n_parallel = _AUTOMATIC
    return params


def load(package: Any, params: Params) -> list[object]:
    """The loaded server, alone in a list; empty if it failed. Until then a signal ends the process as it is."""
    try:
        return [package.Server(params)]
    except RuntimeError as error:
        if params.verbosity < _ERRORS_LOGGED:  # else the engine's own last line says why
            print(f"embedded engine: exiting due to a failed start: {error}", file=sys.stderr)
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
