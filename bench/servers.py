"""Who is measured: the engine without a proxy, nginx, the service, and others where they are wanted."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cpu_time import cpu_seconds
from bench.loads import Load, send
from bench.nginx_proxy import pids_of, start_nginx
from bench.processes import ended, free_ports, wait_for_port
from bench.service import Service, running_service
from bench.table import DIRECT, NGINX, PACELINE


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
        self.count(send(self.port, load.warm_up).requests)

    def cpu_us(self, load: Load) -> float:
        """CPU time per unit in one round, the work that it leaves behind included."""
        before = cpu_seconds(list(self.pids))
        sent = send(self.port, load.arguments)
        self.count(sent.requests)
        return (cpu_seconds(list(self.pids)) - before) * 1e6 / sent.units

    def count(self, requests: int) -> None:
        """So many more were sent and answered; wait for what they leave behind."""
        self.sent += requests
        self.settle(self.sent)


@dataclass(frozen=True)
class Servers:
    """All of them; the first is the engine without a proxy."""

    all: Sequence[Server]
    service: Service

    def named(self, name: str) -> Server:
        """The one of that name."""
        return next(server for server in self.all if server.name == name)

    @property
    def measured_pids(self) -> list[int]:
        """Of all but the engines."""
        return [pid for server in self.all for pid in server.pids]

    @property
    def names(self) -> list[str]:
        """In the order of the table."""
        return [server.name for server in self.all]


@contextmanager
def running_servers(folder: Path, variants: Sequence[str] = ()) -> Iterator[Servers]:
    """No proxy, nginx where it is installed, variants, and the service; an engine for all but the last."""
    with ExitStack() as stack:
        socket_path = folder / "echo.sock"
        direct, behind_nginx, *behind_variants = free_ports(2 + len(variants))
        engine = ["-m", "bench.echo_engine", "--host", str(socket_path), "--port", str(direct)]
        wait_for_port(direct, stack.enter_context(_python(engine)))
        servers = [Server(DIRECT, direct, ())]
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
        yield Servers(servers, service)


@contextmanager
def _python(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with ended(subprocess.Popen([sys.executable, *arguments])) as process:
        yield process
