"""What the relay costs: CPU time of the real service per request and per chunk, beside nginx and no proxy at all."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cpu_time import cpu_seconds
from bench.loads import Load, Measured, loads, median, send
from bench.nginx_proxy import pids_of, start_nginx
from bench.processes import ended, free_ports, wait_for_port
from bench.service import Service, running_service

NGINX, PACELINE = "nginx", "paceline"
VARIANTS = ("answer", "bare", "aiohttp", "httpx", "relay")


@dataclass
class Server:
    """One server under measurement. `settle` waits until the work of all `sent` requests is done."""

    name: str
    port: int
    pids: Sequence[int]
    settle: Callable[[int], None] = lambda sent: None
    sent: int = 0

    def warm_up(self, load: Load) -> None:
        """Connections, memory and caches as they are after a while."""
        self.sent += send(self.port, load.warm_up).requests
        self.settle(self.sent)

    def measure(self, load: Load) -> Measured:
        """One round, the work that it leaves behind included."""
        before = cpu_seconds(list(self.pids))
        sent = send(self.port, load.arguments)
        self.sent += sent.requests
        self.settle(self.sent)
        return Measured((cpu_seconds(list(self.pids)) - before) * 1e6 / sent.units, sent.p50_us, sent.p99_us)


def main(*, quick: bool = False, variants: bool = False) -> int:
    """Measure and print; 1 where a budget is exceeded or cannot be judged, unless it is `quick`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pl-")))
        servers, service = stack.enter_context(_servers(folder, VARIANTS if variants else ()))
        print(f"{'load':<44}{'':>10}{'CPU us':>9}{'ratio':>7}{'budget':>8}{'p50 us':>9}{'p99 us':>9}")
        within = [_row(load, servers) for load in loads(quick=quick)]
        sent = next(server.sent for server in servers if server.name == PACELINE)
        service.demand_complete(sent)
        print(f"each of the {sent:,} requests to paceline was recorded and counted; the CPU time includes that")
    if not any(server.name == NGINX for server in servers):
        print("nginx is not installed: no ratio, and no budget could be judged; install it (apt install nginx-light)")
    return 0 if quick or all(within) else 1


@contextmanager
def _servers(folder: Path, variants: Sequence[str]) -> Iterator[tuple[list[Server], Service]]:
    """No proxy, nginx where it is installed, variants, and the service; an engine for all but the last."""
    with ExitStack() as stack:
        socket_path = folder / "echo.sock"
        direct, behind_nginx, *behind_variants = free_ports(2 + len(variants))
        engine = ["-m", "bench.echo_engine", "--host", str(socket_path), "--port", str(direct)]
        wait_for_port(direct, stack.enter_context(_python(engine)))
        servers = [Server("direct", direct, ())]
        nginx = start_nginx(folder, socket_path, behind_nginx)
        if nginx is not None:
            wait_for_port(behind_nginx, stack.enter_context(ended(nginx)))
            servers.append(Server(NGINX, behind_nginx, pids_of(nginx)))
        for name, port in zip(variants, behind_variants, strict=True):
            process = stack.enter_context(_python(["-m", "bench.variants", name, str(port), str(socket_path)]))
            wait_for_port(port, process)
            servers.append(Server(name, port, (process.pid,)))
        service = stack.enter_context(running_service(folder))
        servers.append(Server(PACELINE, service.port, (service.pid,), service.wait_for_rows))
        yield servers, service


@contextmanager
def _python(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with ended(subprocess.Popen([sys.executable, *arguments])) as process:
        yield process


def _row(load: Load, servers: Sequence[Server]) -> bool:
    """Measure one load in rounds, the servers by turns; print it. Whether Paceline is known to be within the budget."""
    streams = load.unit == "chunk"
    taking_part = [server for server in servers if not (streams and server.name == "answer")]
    for server in taking_part:
        server.warm_up(load)
    rounds: dict[str, list[Measured]] = {server.name: [] for server in taking_part}
    for number in range(load.rounds):
        for server in taking_part:
            # Without a proxy only the latency is of interest, and a paced stream takes its time.
            if not (streams and number and server.name == "direct"):
                rounds[server.name].append(server.measure(load))
    medians = {name: median(each) for name, each in rounds.items()}
    reference = medians.get(NGINX)
    verdict = ""
    for position, (name, measured) in enumerate(medians.items()):
        ratio = measured.cpu_us / reference.cpu_us if reference and name != "direct" else None
        if name == PACELINE:
            verdict = "" if ratio is None else "ok" if ratio <= load.most_ratio else "OVER"
        print(
            f"{f'{load.name}, per {load.unit}' if not position else '':<44}{name:>10}"
            f"{'0' if name == 'direct' else f'{measured.cpu_us:.1f}':>9}{'' if ratio is None else f'{ratio:.1f}':>7}"
            f"{f'{load.most_ratio:g}' if name == PACELINE else '':>8}{measured.p50_us:>9.0f}{measured.p99_us:>9.0f}"
            f"{f'  {verdict}' if name == PACELINE else ''}",
            flush=True,
        )
    return verdict == "ok"
