"""The real service for tests: in this process on a free port, or as a process of its own."""

import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client.parser import text_string_to_metric_families

from app.cli.serve import server
from app.settings import Settings

T = TypeVar("T")

DEADLINE_SECONDS = 30.0
PROMPT = "hello abc"


class ExplicitSettings(Settings):
    """Settings that hear only what a test says: no variables and no `.env` of the developer."""

    @classmethod
    def settings_customise_sources(cls, *_: Any, init_settings: Any, **__: Any) -> tuple[Any, ...]:
        return (init_settings,)


def settings_for(folder: Path, model_dir: Path, **more: Any) -> ExplicitSettings:
    """Settings whose every file lies in `folder`; `more` are settings by name."""
    profiles_dir = folder / "profiles"
    profiles_dir.mkdir(exist_ok=True)
    chosen: dict[str, Any] = {
        "data_dir": folder / "data", "model_dirs": (model_dir,), "profiles_dir": profiles_dir, "engine": "embedded",
        "drain_seconds": 2.0,
    }  # fmt: skip
    return ExplicitSettings(**{**chosen, **more})


@dataclass(frozen=True)
class Service:
    """A running service and a client for it."""

    base_url: str
    client: httpx.Client

    def add(self, document: Mapping[str, Any]) -> str:
        """Create a profile; its id."""
        answer = self.client.post("/profiles", json=document)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def start(self, profile_id: str, **query: Any) -> dict[str, Any]:
        """Start a profile and wait until it is ready; the instance."""
        answer = self.client.post(f"/profiles/{profile_id}/start", params={"wait": True, **query})
        assert answer.status_code == 200, answer.text
        instance: dict[str, Any] = answer.json()
        assert instance["state"] == "ready", instance
        return instance

    def stop(self, profile_id: str, **query: Any) -> dict[str, Any]:
        """Stop a profile and wait until its process is reaped; the instance."""
        answer = self.client.post(f"/profiles/{profile_id}/stop", params={"wait": True, **query})
        assert answer.status_code == 200, answer.text
        instance: dict[str, Any] = answer.json()
        return instance

    def instance(self, instance_id: str) -> dict[str, Any]:
        answer = self.client.get(f"/instances/{instance_id}")
        assert answer.status_code == 200, answer.text
        instance: dict[str, Any] = answer.json()
        return instance

    def newest(self, profile_id: str) -> dict[str, Any]:
        """The newest life of a profile."""
        items = self.client.get("/instances", params={"profile": profile_id}).json()["items"]
        newest: dict[str, Any] = items[0]
        return newest

    def state(self, profile_id: str) -> str:
        return str(self.client.get(f"/profiles/{profile_id}").json()["status"]["state"])

    def complete(self, model: str, prompt: str = PROMPT, **more: Any) -> httpx.Response:
        """A greedy completion of 32 tokens."""
        return self.client.post("/v1/completions", json=completion(model, prompt, **more))

    def stream(self, model: str, prompt: str = PROMPT, **more: Any) -> tuple[httpx.Response, list[str]]:
        """The same as a stream; the answer and the payload of each of its events."""
        with self.client.stream("POST", "/v1/completions", json=completion(model, prompt, stream=True, **more)) as got:
            return got, list(events(got))

    def row(self, answer: httpx.Response) -> dict[str, Any]:
        """What was recorded of a request, once it is."""
        return self.row_of(answer.headers["x-request-id"])

    def row_of(self, request_id: str) -> dict[str, Any]:
        def recorded() -> dict[str, Any] | None:
            found = self.client.get(f"/requests/{request_id}")
            return found.json() if found.status_code == 200 else None

        return eventually(recorded)

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of one series."""
        for family in text_string_to_metric_families(self.client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None


def completion(model: str, prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, "max_tokens": 32, "temperature": 0, **more}


def events(answer: httpx.Response) -> Iterator[str]:
    """The payloads of the data events of a stream."""
    return (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))


def text_of(payloads: list[str]) -> str:
    """The text of a stream of completion events."""
    choices = [choice for payload in payloads if payload != "[DONE]" for choice in json.loads(payload)["choices"]]
    return "".join(choice["text"] for choice in choices)


def eventually(ask: Callable[[], T | None], deadline_seconds: float = DEADLINE_SECONDS) -> T:
    """The first answer that is one, neither None nor False; asked again and again, since nobody tells."""
    deadline = time.monotonic() + deadline_seconds
    while (found := ask()) is None or found is False:
        assert time.monotonic() < deadline, f"nothing came within {deadline_seconds:g} s"
    return found


class InFlight:
    """A request that a thread sends and reads to its end; `outcome` waits for that."""

    def __init__(self, service: Service, body: Mapping[str, Any]) -> None:
        self._url = f"{service.base_url}/v1/completions"
        self._body = body
        self._has_begun = threading.Event()
        self._answer: httpx.Response | None = None
        self._failure: httpx.HTTPError | None = None
        self.payloads: list[str] = []
        self._thread = threading.Thread(target=self._send, name="request")
        self._thread.start()

    def _send(self) -> None:
        try:
            with (
                httpx.Client(timeout=DEADLINE_SECONDS, trust_env=False) as client,
                client.stream("POST", self._url, json=self._body) as answer,
            ):
                self._answer = answer
                if self._body.get("stream"):
                    for payload in events(answer):
                        self.payloads.append(payload)
                        self._has_begun.set()
                else:
                    answer.read()
        except httpx.HTTPError as failure:
            self._failure = failure
        finally:
            self._has_begun.set()

    def has_begun(self) -> bool:
        """Wait for the first event of the stream."""
        return self._has_begun.wait(DEADLINE_SECONDS) and bool(self.payloads)

    def is_running(self) -> bool:
        """Whether it still goes on."""
        return self._thread.is_alive()

    def outcome(self) -> tuple[httpx.Response | None, httpx.HTTPError | None]:
        """The answer, and what cut it short."""
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the request does not end"
        return self._answer, self._failure


def wait_for_end(pid: int, deadline_seconds: float = DEADLINE_SECONDS) -> bool:
    """Whether the process ends in time, a child of ours or not; a process that is gone already has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(deadline_seconds * 1000))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def running_service(settings: Settings) -> Iterator[Service]:
    """The service as it is, served by the real server in a thread; it is shut down in order at the end."""
    uvicorn_server = server(settings)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            try:
                uvicorn_server.run(sockets=[listening])
            finally:
                # Should it not come up, clients shall not wait for it.
                listening.close()

        thread = threading.Thread(target=serve, name="service")
        thread.start()
        try:
            with client_of(f"http://127.0.0.1:{port}") as service:
                assert service.client.get("/health").status_code == 200
                yield service
        finally:
            uvicorn_server.should_exit = True
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive(), "the service does not end"


@contextlib.contextmanager
def client_of(base_url: str) -> Iterator[Service]:
    with httpx.Client(base_url=base_url, timeout=DEADLINE_SECONDS, trust_env=False) as client:
        yield Service(base_url, client)


@dataclass
class ServedProcess:
    """The service as a process of its own."""

    service: Service
    process: subprocess.Popen[str]
    log: list[str]


@contextlib.contextmanager
def served_process(settings: Settings) -> Iterator[ServedProcess]:
    """`paceline serve` with these settings, ready for requests; killed at the end where it still runs."""
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve"],
            cwd=folder,
            env=_environment(settings),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        log: list[str] = []
        port: list[int] = []
        is_up = threading.Event()
        reader = threading.Thread(target=_read, args=(process, log, port, is_up))
        reader.start()
        try:
            assert is_up.wait(DEADLINE_SECONDS), "".join(log)
            assert port, "".join(log)
            with client_of(f"http://127.0.0.1:{port[0]}") as service:
                yield ServedProcess(service, process, log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE_SECONDS)
            reader.join(DEADLINE_SECONDS)
            if process.stderr is not None:
                process.stderr.close()


def _read(process: subprocess.Popen[str], log: list[str], port: list[int], is_up: threading.Event) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line)
        if match := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
            port.append(int(match[1]))
            is_up.set()
    is_up.set()


def _environment(settings: Settings) -> dict[str, str]:
    """The settings that were given as variables, and none of the developer's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    for name, value in settings.model_dump(mode="json", include=settings.model_fields_set).items():
        environment[f"PACELINE_{name.upper()}"] = json.dumps(value) if isinstance(value, list) else str(value)
    environment["PACELINE_PORT"] = "0"
    return environment


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short: that of a Unix socket ends at 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="pl-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
