"""What the relay costs: the real service beside nginx and no proxy at all, against the budgets."""

import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import latency, open_streams
from bench.cores import placed_apart
from bench.loads import Load, loads
from bench.servers import Server, Servers, running_servers
from bench.table import DIRECT, NGINX, PACELINE, Line, Table, told

VARIANTS = ("answer", "bare", "aiohttp", "httpx", "relay")


def main(*, quick: bool = False, variants: bool = False, apart: bool = True) -> int:
    """Measure and print; 1 where a budget is exceeded or cannot be judged, unless it is `quick`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pl-")))
        servers = stack.enter_context(running_servers(folder, VARIANTS if variants else ()))
        table = Table(servers.names)
        table.begin()
        with placed_apart(servers.measured_pids, is_wanted=apart):
            for load in loads(quick=quick):
                table.add(cpu_line(load, servers, table))
        plain = [server for server in servers.all if server.name not in VARIANTS]
        for line in latency.lines(plain, quick=quick):
            table.add(line)
        sent = servers.named(PACELINE).sent
        servers.service.demand_complete(sent)
    for line in open_streams.lines(quick=quick):
        table.add(line)
    print(f"each of the {sent:,} requests to paceline was recorded and counted; the CPU time includes that")
    if NGINX not in servers.names:
        print("nginx is not installed: no CPU time could be judged; install it (apt install nginx-light)")
    print_load_average()
    return 0 if quick or table.is_within else 1


def print_load_average() -> None:
    """What else the machine had to do: latencies depend on it much, ratios of CPU time little."""
    print(f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, ours included")


def cpu_line(load: Load, servers: Servers, table: Table) -> Line:
    """Measure one load in rounds, the servers by turns."""
    taking_part = [server for server in servers.all if _takes_part(server, load)]
    for server in taking_part:
        server.warm_up(load)
    rounds: dict[str, list[float]] = {server.name: [] for server in taking_part}
    for number in range(load.rounds):
        for server in taking_part:
            told(f"{load.name}: round {number + 1} of {load.rounds}, {server.name}")
            rounds[server.name].append(server.cpu_us(load))
    values = {name: statistics.median(each) for name, each in rounds.items()}
    if load.beside is None:
        reference, of = values.get(NGINX), "x nginx"
    else:
        reference = next(line.values[PACELINE] for line in table.lines if line.name == load.beside)
        of = "x passed through"
    figure = values[PACELINE] / reference if reference else None
    return Line(load.name, "us", values, figure, of, load.most_ratio)


def _takes_part(server: Server, load: Load) -> bool:
    if load.beside is not None:
        return server.name == PACELINE
    return server.name != DIRECT and not (server.name == "answer" and load.is_stream)
