"""Real small processes that an earlier life might have left, and those that it did not."""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from app.identifiers import TimeOrderedIds, id_text
from app.instances.log_files import prune_logs
from app.instances.orphans import ChildFiles, ChildRecord, end_orphans, start_mark
from app.instances.process import ServerProcess

STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"


@contextmanager
def running(*argv: str, says: str | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A process that leads a session; killed at the end where it still lives. `says` is its first line."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            if says is not None:
                assert child.stdout is not None
                assert child.stdout.readline().strip() == says
            yield child
        finally:
            child.kill()


def has_ended(pid: int, within_seconds: float = 10) -> bool:
    """Whether the process ends in time; a pidfd becomes readable then."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within_seconds)[0])
    finally:
        os.close(descriptor)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "children"


@pytest.fixture
def runtime_dir(tmp_path: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="paceline-", dir=tmp_path))


def remembered(folder: Path, runtime_dir: Path, pid: int, argv: Sequence[str]) -> Path:
    ChildFiles(folder, runtime_dir).add(1, pid, argv)
    return folder / f"{id_text(1)}.json"


def test_a_child_that_lives_has_a_file(folder: Path, runtime_dir: Path) -> None:
    files = ChildFiles(folder, runtime_dir)
    files.add(1, os.getpid(), ["llama-server", "--host", "x.sock"])
    path = folder / f"{id_text(1)}.json"
    started = start_mark(os.getpid())
    assert started
    assert ChildRecord.read(path) == ChildRecord(
        os.getpid(), started, ["llama-server", "--host", "x.sock"], str(runtime_dir)
    )
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    files.remove(1)
    files.remove(1)
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    files = ChildFiles(tmp_path / "file", tmp_path)
    with caplog.at_level(logging.WARNING):
        files.add(1, os.getpid(), ["x", "y"])
        files.remove(1)
    assert "cannot be remembered" in caplog.text


def test_the_start_of_a_process_is_its_own() -> None:
    with running("sleep", "600") as one, running("sleep", "600") as other:
        marks = [start_mark(child.pid) for child in (one, other)]
        assert all(marks)
        assert start_mark(one.pid) == marks[0]
        assert start_mark(os.getpid()) not in marks
        one.kill()
        one.wait()
        assert start_mark(one.pid) is None


def test_what_was_left_is_ended_with_its_folder(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    (runtime_dir / "x.sock").touch()
    with running("sleep", "600") as child:
        path = remembered(folder, runtime_dir, child.pid, ["sleep", "600"])
        assert end_orphans(folder, [tmp_path]) == [child.pid]
        assert child.wait(10) == -signal.SIGTERM
    assert not path.exists()
    assert not runtime_dir.exists()


def test_what_ignores_term_is_killed(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    argv = [sys.executable, "-I", "-c", STUBBORN]
    with running(*argv, says="up") as child:
        remembered(folder, runtime_dir, child.pid, argv)
        assert end_orphans(folder, [tmp_path], terminate_seconds=0.1) == [child.pid]
        assert child.wait(10) == -signal.SIGKILL


def test_the_whole_session_is_ended(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    argv = ["sh", "-c", "sleep 600 & echo up; wait", "sh", "--host", "a.sock"]
    with running(*argv, says="up") as child:
        (grandchild,) = psutil.Process(child.pid).children()
        remembered(folder, runtime_dir, child.pid, argv)
        assert set(end_orphans(folder, [tmp_path])) == {child.pid, grandchild.pid}
        assert has_ended(grandchild.pid)


@pytest.mark.parametrize("wrong", ["started", "argv", "pid"])
def test_anything_else_is_not_touched(tmp_path: Path, folder: Path, runtime_dir: Path, wrong: str) -> None:
    with running("sleep", "600") as child, running("sleep", "601") as other:
        path = remembered(folder, runtime_dir, child.pid, ["sleep", "600"])
        record = asdict(ChildRecord.read(path))
        record |= {
            "started": {"started": f"{start_mark(child.pid)}1"},
            "argv": {"argv": ["sleep", "60"]},
            "pid": {"pid": other.pid},
        }[wrong]
        path.write_text(json.dumps(record))
        assert end_orphans(folder, [tmp_path]) == []
        assert (child.poll(), other.poll()) == (None, None)
    assert not path.exists()


def test_a_process_of_another_boot_is_not_ours(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    with running("sleep", "600") as child:
        path = remembered(folder, runtime_dir, child.pid, ["sleep", "600"])
        record = asdict(ChildRecord.read(path))
        ticks = record["started"].partition(":")[2]
        path.write_text(json.dumps(record | {"started": f"00000000-0000-0000-0000-000000000000:{ticks}"}))
        assert end_orphans(folder, [tmp_path]) == []
        assert child.poll() is None


def test_a_child_that_has_not_become_the_server_yet_is_known(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    """Between fork and exec the tether stands before the arguments; a shell stands before those of a script."""
    with running("sh", "-c", "echo up; sleep 600; :", "-I", "llama-server", "--host", "a.sock", says="up") as child:
        remembered(folder, runtime_dir, child.pid, ["llama-server", "--host", "a.sock"])
        assert child.pid in end_orphans(folder, [tmp_path])


async def test_a_script_as_engine_is_known(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    script = tmp_path / "engine"
    script.write_text("#!/usr/bin/env python3\nimport signal\nprint('up', flush=True)\nsignal.pause()\n")
    script.chmod(0o755)
    argv = [str(script), "--host", str(runtime_dir / "a.sock")]
    child = await ServerProcess.start(argv, {"PATH": os.environ["PATH"]}, lambda _: None)
    try:
        remembered(folder, runtime_dir, child.pid, argv)
        assert end_orphans(folder, [tmp_path]) == [child.pid]
    finally:
        child.kill()
        await child.exited


def test_the_server_of_a_wrapper_that_is_gone_is_ended(tmp_path: Path, folder: Path, runtime_dir: Path) -> None:
    server = "import signal, sys; print('up', flush=True); signal.pause()"
    start = "import subprocess, sys; subprocess.call([sys.executable, '-I', '-c', sys.argv[1], *sys.argv[2:]])"
    flags = ["--host", str(runtime_dir / "a.sock")]
    argv = [sys.executable, "-I", "-c", start, server, *flags]
    with running(*argv, says="up") as wrapper:
        (left,) = psutil.Process(wrapper.pid).children()
        # What was executed is the wrapper with its flags; the server got the flags.
        path = remembered(folder, runtime_dir, wrapper.pid, ["wrapper", *flags])
        wrapper.kill()
        wrapper.wait()
        assert left.is_running()
        assert end_orphans(folder, [tmp_path]) == [left.pid]
        assert has_ended(left.pid)
    assert not path.exists()


def test_another_program_in_the_session_of_a_wrapper_that_is_gone_is_not_touched(
    tmp_path: Path, folder: Path, runtime_dir: Path
) -> None:
    with running("sh", "-c", "sleep 600 & echo up; wait", says="up") as wrapper:
        (left,) = psutil.Process(wrapper.pid).children()
        remembered(folder, runtime_dir, wrapper.pid, ["sh", "--host", "a.sock"])
        wrapper.kill()
        wrapper.wait()
        try:
            assert end_orphans(folder, [tmp_path]) == []
            assert left.is_running()
        finally:
            left.kill()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"pid": 0, "started": "", "argv": ["a", "b"], "runtime_dir": ""}',
     '{"pid": "7", "started": "", "argv": ["a", "b"], "runtime_dir": ""}',
     '{"pid": 7, "started": "", "argv": ["a", 1], "runtime_dir": ""}',
     '{"pid": 7, "started": "", "argv": [], "runtime_dir": ""}', "\0\xff"],
)  # fmt: skip
def test_what_is_no_child_file_is_removed(
    tmp_path: Path, folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    (folder / f"{id_text(1)}.json").write_bytes(text.encode("latin-1"))
    (folder / f"{id_text(2)}.draft").write_text('{"pid"')
    with caplog.at_level(logging.WARNING):
        assert end_orphans(folder, [tmp_path]) == []
    assert "tells of no child" in caplog.text
    assert list(folder.iterdir()) == []


def test_no_folder_no_orphans(tmp_path: Path) -> None:
    assert end_orphans(tmp_path / "absent", [tmp_path]) == []


@pytest.mark.parametrize("wrong", ["name", "mode", "place", "link", "none"])
def test_only_a_folder_that_a_run_made_is_removed(tmp_path: Path, folder: Path, wrong: str) -> None:
    made = tmp_path / ("elsewhere" if wrong == "name" else "paceline-abc")
    if wrong == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        made.symlink_to(tmp_path / "target")
    else:
        made.mkdir(mode=0o755 if wrong == "mode" else 0o700)
    path = remembered(folder, made, os.getpid(), ["never", "mine"])
    bases = [tmp_path / "other" if wrong == "place" else tmp_path]
    assert end_orphans(folder, bases) == []
    assert not path.exists()
    assert made.exists() is (wrong != "none")


def test_the_newest_log_files_are_kept_and_those_of_the_living(tmp_path: Path) -> None:
    ids = TimeOrderedIds()
    lives = [ids.next() for _ in range(6)]
    for identifier in lives:
        (tmp_path / f"{id_text(identifier)}.log").touch()
    (tmp_path / f"{id_text(lives[0])}.log.1").touch()
    (tmp_path / f"{id_text(lives[1])}.log.1").touch()
    for name in ("paceline.log", "notes.txt", f"{id_text(lives[2])}.log.bak"):
        (tmp_path / name).touch()
    assert prune_logs(tmp_path, 3, {lives[0]}) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "notes.txt", "paceline.log", f"{id_text(lives[2])}.log.bak",
            f"{id_text(lives[0])}.log", f"{id_text(lives[0])}.log.1",
            f"{id_text(lives[4])}.log", f"{id_text(lives[5])}.log",
        ]
    )  # fmt: skip
    assert prune_logs(tmp_path, 0, {lives[0]}) == 2
    assert prune_logs(tmp_path, 3, set()) == 0
    assert prune_logs(tmp_path / "absent", 3, set()) == 0
