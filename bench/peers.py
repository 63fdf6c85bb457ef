"""`python -m bench.peers PROGRAM`: the relay's table beside LiteLLM's proxy, whose program that is.

LiteLLM runs as its documentation has it for one engine that speaks OpenAI's API: one worker of uvicorn, no database, no
callbacks, no key, as the service runs without one here. Its access log is off, as the service's is; so are its usage
reports, and the price list that it would fetch.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from bench.cores import placed_apart
from bench.latency import added_first_byte_ms, first_byte_lines, flow_lines
from bench.loads import lighter, loads
from bench.open_streams import names, open_streams, resident_bytes
from bench.processes import ended, free_ports, wait_for_port
from bench.relay import cpu_line, print_load_average
from bench.servers import Server, Servers, running_servers
from bench.table import DIRECT, NGINX, PACELINE, Line, Table

LITELLM = "litellm"
_START_SECONDS = 120.0
_TURNS, _ROUNDS = 100, 3
# LiteLLM can keep up with the events of so many.
_STREAMS = 200
_CONFIGURATION = """
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"uvicorn.access": {"level": "CRITICAL"}, "uvicorn.error": {"level": "ERROR"}},
}


class PeerTable(Table):
    """Beside each figure LiteLLM's in nginx's and in ours, instead of budgets."""

    @property
    def tail_head(self) -> str:
        """LiteLLM's figure, divided by theirs."""
        return f"{'/ nginx':>11}{'/ paceline':>11}"

    def tail(self, line: Line) -> str:
        """Empty where there is nothing to divide by."""
        peer = line.values.get(LITELLM)
        others = [line.values.get(name) for name in (NGINX, PACELINE)]
        return "".join(f"{peer / other:>11.1f}" if peer and other else f"{'':>11}" for other in others)


def main(program: Path) -> int:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pl-")))
        alone = stack.enter_context(running_servers(folder))
        litellm = stack.enter_context(_litellm(program, folder, alone.named(DIRECT).port))
        servers = replace(alone, all=[*alone.all, litellm])
        table = PeerTable(servers.names)
        table.begin()
        for line in _lines(servers, litellm, table):
            table.add(line)
    print_load_average()
    return 0


def _lines(servers: Servers, litellm: Server, table: Table) -> Iterator[Line]:
    yield _memory_line(servers, "after the start")
    yield from _open_stream_lines(servers)
    with placed_apart(servers.measured_pids):
        for load in loads(quick=False):
            if load.beside is None:
                yield cpu_line(lighter(load), servers, table)
    # Apart from each other: what LiteLLM still does for one request would be in the way of the next one, of others.
    without = [server for server in servers.all if server is not litellm]
    added_ms = {
        **added_first_byte_ms(without, _TURNS, _ROUNDS),
        **added_first_byte_ms([without[0], litellm], _TURNS, _ROUNDS),
    }
    yield from first_byte_lines(added_ms)
    yield from flow_lines(servers.all, requests=1, chunks=40, rounds=_ROUNDS)
    yield _memory_line(servers, "after all that")


def _open_stream_lines(servers: Servers) -> Iterator[Line]:
    got = {
        server.name: open_streams(server, _STREAMS, seconds=5)
        for server in servers.all
        if server.name in (PACELINE, LITELLM)
    }
    memory, progress = names(_STREAMS)
    yield Line(memory, "KiB", {name: each.each_kib for name, each in got.items()})
    yield Line(progress, "", {name: each.ratio for name, each in got.items()})


@contextmanager
def _litellm(program: Path, folder: Path, engine_port: int) -> Iterator[Server]:
    (port,) = free_ports(1)
    configuration, logging = folder / "litellm.yaml", folder / "litellm-logging.json"
    configuration.write_text(_CONFIGURATION.format(port=engine_port))
    logging.write_text(json.dumps(_LOGGING))
    address = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    files = ["--config", str(configuration), "--log_config", str(logging), "--telemetry", "False"]
    # Nothing of ours is in its environment: keys that lie there are no business of a program we only measure.
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    with (folder / "litellm.log").open("wb") as log:
        started = subprocess.Popen(
            [program.absolute(), *address, *files], cwd=folder, env=environment, stdout=log, stderr=log
        )
        with ended(started) as process:
            try:
                wait_for_port(port, process, _START_SECONDS)
            except RuntimeError:
                print((folder / "litellm.log").read_text(errors="replace")[-2000:], file=sys.stderr)
                raise
            pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
            yield Server(LITELLM, port, pids)


def _memory_line(servers: Servers, when: str) -> Line:
    values = {server.name: resident_bytes(server) / 2**20 for server in servers.all if server.name != DIRECT}
    return Line(f"memory {when}", "MiB", values)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
