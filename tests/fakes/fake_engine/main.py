"""From the command line to a running server, by way of loading and its faults."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import dry_run
from .command_line import BadArgument, Options, parse, read_flags
from .identity import identify
from .loading import Load
from .scenario import BadScenario, Events, Scenario, load
from .server import FakeServer, abort

_STARTED = time.monotonic()
_RECORDED_HELP = Path(__file__).parents[2] / "fixtures" / "help_11434.txt"


def log(level: str, text: str) -> None:
    """One line in the engine's format: minutes, seconds, milliseconds, microseconds."""
    us = int((time.monotonic() - _STARTED) * 1e6)
    stamp = f"{us // 60_000_000}.{us // 1_000_000 % 60:02}.{us // 1000 % 1000:03}.{us % 1000:03}"
    print(f"{stamp} {level} {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """The whole program; returns the exit code."""
    executable = Path(argv[0]).absolute()
    own_help = executable.with_name(executable.name + ".help.txt")
    help_text = (own_help if own_help.exists() else _RECORDED_HELP).read_text()
    try:
        options = parse(argv[1:], read_flags(help_text))
        model = options.value("--model")
        events = Events(Path(model + ".events.jsonl") if model else None)
        sources = [executable.with_name(executable.name + ".scenario.json")]
        sources += [Path(model + ".scenario.json")] if model else []
        scenario = load(sources, list(argv[1:]), events.launch)
        return _act(options, scenario, events, help_text, list(argv))
    except BadArgument as problem:
        print(problem, file=sys.stderr)
    except BadScenario as problem:
        print(f"fake engine: bad scenario: {problem}", file=sys.stderr)
    return 1


def _act(options: Options, scenario: Scenario, events: Events, help_text: str, argv: list[str]) -> int:
    if options.used("--help"):
        print(help_text, end="")
        return 0
    if options.used("--version"):
        print("version: 0.6.0-dev (build 0, commit unknown)", file=sys.stderr)
        return 0
    if options.used("--list-devices"):
        print(_device_list(scenario.devices or ()))
        return 0
    _check_devices(options, scenario)
    if not options.value("--model"):
        print("fake engine: no --model; router mode is not played", file=sys.stderr)
        return 1
    if dry_run.is_asked(options):
        return dry_run.play(options, scenario, events, argv)
    # An abort is part of the play and should leave no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    events.add("started", pid=os.getpid(), argv=argv, environment=sorted(os.environ))
    return asyncio.run(_run(options, scenario, events))


def _device_list(devices: Sequence[Mapping[str, Any]]) -> str:
    rows = [f"  {d['name']}: {d['description']} ({d['total_mib']} MiB, {d['free_mib']} MiB free)" for d in devices]
    return "\n".join(["Available devices:", *(rows or ["  (none)"])])


def _check_devices(options: Options, scenario: Scenario) -> None:
    """Only a scenario that lists devices knows which names are wrong."""
    if scenario.devices is None:
        return
    known = {str(device["name"]) for device in scenario.devices} | {"none", ""}
    for flag in ("--device", "--device-draft"):
        for name in options.value(flag).split(","):
            if name not in known and not name.startswith("RPC"):
                spelled = options.used(flag)
                raise BadArgument(f'error while handling argument "{spelled}": invalid device: {name}')


def _bind(options: Options) -> socket.socket:
    """Raises OSError, also for a socket file that an earlier server left behind."""
    host, port = options.value("--host") or "127.0.0.1", options.number("--port", 8080)
    try:
        if host.endswith(".sock"):
            unix = socket.socket(socket.AF_UNIX)
            unix.bind(host)
            return unix
        return socket.create_server((host, port), reuse_port=False)
    except OSError:
        log("E", f"srv         start: couldn't bind HTTP server socket, hostname: {host}, "
                 f"port: {port}")  # fmt: skip
        raise


async def _beside_a_foreigner(options: Options, events: Events, server: FakeServer) -> int:
    """Live without listening, while another program does at our address."""
    address = options.value("--host") or "127.0.0.1", options.value("--port", "8080")
    # It ends with us: its standard input is ours to close.
    foreign = await asyncio.create_subprocess_exec(
        sys.executable, Path(__file__).with_name("foreign.py"), *address,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    events.add("foreign", pid=foreign.pid)
    await server.finished.wait()
    events.add("exiting", code=0)
    os._exit(0)


async def _run(options: Options, scenario: Scenario, events: Events) -> int:
    identity = identify(options, scenario, os.environ.get("LLAMA_API_KEY", ""))
    pings = scenario.ping_interval_seconds or options.number("--sse-ping-interval", 30)
    server = FakeServer(identity, scenario, events, pings if pings > 0 else None, log)
    loop = asyncio.get_running_loop()

    def asked_to_stop(name: str) -> None:
        events.add("sigterm", signal=name, ignored=scenario.ignore_sigterm)
        if not scenario.ignore_sigterm:
            server.asked_to_stop()

    def handle_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked_to_stop, number.name)

    if scenario.foreign_listener:
        handle_signals()
        return await _beside_a_foreigner(options, events, server)
    try:
        bound = _bind(options)
    except OSError:
        log("E", "srv  llama_server: exiting due to HTTP server error")
        return 1
    if bound.family == socket.AF_UNIX:
        await loop.create_unix_server(server.protocol, sock=bound)
        address = f"unix://{bound.getsockname()}"
    else:
        await loop.create_server(server.protocol, sock=bound)
        address = "http://{}:{}".format(*bound.getsockname()[:2])
    if scenario.ignore_sigterm:
        handle_signals()
    # Kept: what it took is held as long as the server lives.
    load = Load(options, scenario, identity, events, log)
    if (failed := await load.run()) is not None:
        events.add("exiting", code=failed)
        os._exit(failed)
    # As in the engine: until here SIGTERM simply kills.
    handle_signals()
    server.ready.set()
    log("I", "srv  llama_server: model loaded")
    log("I", f"srv  llama_server: listening on {address}")
    events.add("ready", address=address)
    if scenario.abort_after_ready_seconds is not None:
        loop.call_later(scenario.abort_after_ready_seconds, abort, "GGML_ABORT(later)")
    await server.finished.wait()
    log("I", "srv    operator(): operator(): cleaning up before exit...")
    events.add("exiting", code=0)
    # Leaves at once, with the socket file in its place, as the engine does.
    os._exit(0)
