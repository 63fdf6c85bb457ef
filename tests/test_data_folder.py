"""One service for one data folder, whatever ends it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.data_folder import held
from app.errors import DataFolderInUse

HOLD = """
import sys
from pathlib import Path
from app.data_folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_folder_is_held_and_given_back(tmp_path: Path) -> None:
    with held(tmp_path / "new"), pytest.raises(DataFolderInUse, match=str(os.getpid())), held(tmp_path / "new"):
        raise AssertionError("held twice")
    with held(tmp_path / "new"):
        pass


def test_another_process_is_named_and_its_death_gives_the_folder_back(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataFolderInUse, match=f"process {other.pid}"), held(tmp_path):
            raise AssertionError("held twice")
        other.kill()
        other.wait()
    with held(tmp_path):
        pass


def test_a_database_that_lies_elsewhere_is_held_too(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "p.db"
    with held(tmp_path / "a", shared):
        with pytest.raises(DataFolderInUse, match=r"p\.db.*PACELINE_DATABASE_URL"), held(tmp_path / "b", shared):
            raise AssertionError("held twice")
        with held(tmp_path / "b", tmp_path / "b" / "p.db"):
            pass
    with held(tmp_path / "b", shared):
        pass


def test_a_database_behind_links_is_held_as_one(tmp_path: Path) -> None:
    links = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        links.append(tmp_path / name / f"{name}.db")
        links[-1].symlink_to(tmp_path / "shared.db")
    held_twice = pytest.raises(DataFolderInUse, match=r"shared\.db.*PACELINE_DATABASE_URL")
    with held(tmp_path / "a", links[0]), held_twice, held(tmp_path / "b", links[1]):
        raise AssertionError("held twice")
    with held(tmp_path / "b", links[1]):
        pass


def test_two_folders_live_side_by_side(tmp_path: Path) -> None:
    with held(tmp_path / "a"), held(tmp_path / "b"):
        pass
