import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli.paceline_command import ROOT, clean_environment, paceline
from fixtures.tiny_models import TinyModels
from service import served_process, settings_for

from app.cli.exit_codes import Exit


def test_an_interrupt_ends_it_in_order(tiny: TinyModels, tmp_path: Path) -> None:
    with served_process(settings_for(tmp_path, tiny.dense_target.parent)) as served:
        served.service.add({"id": "d", "target": {"path": "dense.gguf"}, "context": {"threads": 1}})
        served.service.start("d")
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(30) == Exit.DONE
    log = "".join(served.log)
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
    assert "Aborted" not in log


def test_a_database_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "paceline.db").write_text("this is a text, and long enough not to be taken for an empty file\n" * 20)
    ended = paceline("serve", cwd=tmp_path, settings={"PACELINE_DATA_DIR": str(tmp_path), "PACELINE_PORT": "0"})
    assert ended.code == Exit.REFUSED
    assert ended.err.splitlines()[-1].startswith("paceline: the database cannot be used")
    assert "Traceback" not in ended.err


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = paceline("serve", "--port", port, cwd=tmp_path, settings={"PACELINE_DATA_DIR": str(tmp_path)})
    assert ended.code == Exit.REFUSED
    assert "address already in use" in ended.err
    assert f"did not come up on 127.0.0.1 port {port}" in ended.err.splitlines()[-1]


def test_threads_take_short_turns(tmp_path: Path) -> None:
    """A question that another thread computes must not hold every event of every stream for five milliseconds."""
    program = (
        "import atexit, sys; from app.cli import main; "
        "atexit.register(lambda: print(sys.getswitchinterval())); sys.argv = ['paceline', 'serve']; main()"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        environment = clean_environment(PACELINE_DATA_DIR=str(tmp_path), PACELINE_PORT=port, PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False)
    assert b"address already in use" in ended.stderr
    assert float(ended.stdout) < 0.001


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_does_not_open_the_machine(tmp_path: Path, host: str) -> None:
    ended = paceline("serve", "--host", host, cwd=tmp_path, settings={"PACELINE_DATA_DIR": str(tmp_path)})
    assert ended.code == Exit.USAGE
    assert "PACELINE_ALLOW_UNAUTHENTICATED" in ended.err
