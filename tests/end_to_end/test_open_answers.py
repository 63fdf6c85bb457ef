"""The service is asked to end while clients of the control API neither take what they asked for nor send the rest."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.finished_requests import finished
from fixtures.faulty_engine import FAKE_ENGINE, Faults
from fixtures.raw_http import COMPLETIONS, get, head
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, ServedProcess, eventually, served_process, settings_for, short_folder

from app.database import Database
from app.telemetry.recorder import Recorder

# So long the service would wait for requests that are being served.
DRAIN_SECONDS = 4 * DEADLINE_SECONDS
ROWS = 12_000
# What the kernel keeps for a client that does not read, so that little is enough to make the service wait for it.
RECEIVED_BYTES = 4096

EXPORT = get(b"/requests/export?format=jsonl")
# More than a kernel keeps: each is let go before the next is begun.
ONE_PIECE = get(b"/requests?limit=1000") * 8
UPLOAD = head(b"POST /profiles HTTP/1.1", b"Content-Length: 1000") + b'{"id": '
RELAYED_UPLOAD = head(COMPLETIONS, b"Content-Length: 1000") + b'{"model": '


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where requests are recorded already."""
    with short_folder() as folder:
        (folder / "models").mkdir()
        (folder / "data").mkdir()
        database = Database(f"sqlite:///{folder / 'data' / 'paceline.db'}")
        database.migrate()
        database.start()
        recorder = Recorder(database, waiting_most=ROWS)
        for number in range(ROWS):
            recorder.on_request_finished(finished(number))
        asyncio.run(recorder.flush())
        assert recorder.lost_rows == 0
        database.close()
        yield folder


@contextlib.contextmanager
def asked(served: ServedProcess, request: bytes) -> Iterator[socket.socket]:
    """A client that has asked, and takes nothing by itself."""
    with socket.socket() as client:
        client.settimeout(DEADLINE_SECONDS)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        client.connect(("127.0.0.1", served.service.client.base_url.port))
        client.sendall(request)
        yield client


def rest_of(client: socket.socket) -> bytes:
    """All that is left to be read, until the connection ends."""
    read = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(1 << 16):
            read += more
    return read


def ended(served: ServedProcess) -> list[str]:
    """The service ends as ever, and long before the requests it serves would have to; what its log says of it."""
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(DEADLINE_SECONDS) in (0, -signal.SIGTERM)
    return [line for line in served.log if "the service ends" in line]


@pytest.mark.slow
def test_files_and_answers_that_nobody_takes_are_cut(folder: Path) -> None:
    """Earns that no reader of the control API, however slow, holds up an upgrade, or takes half a file for a whole."""
    settings = settings_for(folder, folder / "models", drain_seconds=DRAIN_SECONDS, retention_days=0)
    with (
        served_process(settings) as served,
        asked(served, EXPORT) as export,
        asked(served, ONE_PIECE) as one_piece,
        asked(served, UPLOAD) as upload,
    ):
        begun = export.recv(1024)
        assert begun.startswith(b"HTTP/1.1 200")
        assert b"transfer-encoding: chunked" in begun
        assert one_piece.recv(12) == b"HTTP/1.1 200"
        told = ended(served)
        assert not rest_of(export).endswith(b"0\r\n\r\n")
        assert not rest_of(one_piece).endswith(b"}")
        assert rest_of(upload) == b""
    assert len(told) == 1
    assert "GET /requests, GET /requests/export, POST /profiles" in told[0]
    assert not complaints(served)


@pytest.mark.slow
def test_a_relayed_request_has_the_drain_and_then_no_traceback(folder: Path) -> None:
    """Earns that who reads the log of a stop sees faults in it only where there are some."""
    settings = settings_for(folder, folder / "models", drain_seconds=1)
    with served_process(settings) as served, asked(served, RELAYED_UPLOAD):
        eventually(lambda: served.service.client.get("/requests?state=active").json()["items"] or None)
        assert ended(served) == []
    assert [line.strip().rpartition(" ")[2] for line in complaints(served)] == ["exceeded"]


def test_a_check_does_not_wait_for_its_engine_to_measure(tiny: TinyModels) -> None:
    with short_folder() as folder:
        (folder / "models").mkdir()
        settings = settings_for(folder, folder / "models", engine=str(FAKE_ENGINE), drain_seconds=DRAIN_SECONDS)
        with served_process(settings) as served, ThreadPoolExecutor(1) as pool:
            faults = Faults(served.service, folder / "models", tiny)
            profile = faults.profile("endless", {"dry_run": {"stdout": []}})
            checking = pool.submit(served.service.client.post, f"/profiles/{profile}/check")
            eventually(lambda: faults.facts(profile, "measured") or None)
            assert ended(served) == []
            answer = checking.result(DEADLINE_SECONDS)
            assert (answer.status_code, answer.json()["estimate_source"]) == (200, "analytic")
    assert not complaints(served)


def complaints(served: ServedProcess) -> list[str]:
    """Lines of the log that nobody should see who stops a service."""
    return [line for line in served.log if any(word in line for word in ("Traceback", "ERROR", "Error", "exceeded"))]
