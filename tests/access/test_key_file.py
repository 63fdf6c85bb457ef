import os
import stat
from pathlib import Path

import pytest

from app.access.key_file import KeyFileUnwritable, ensure_key_file
from app.settings import Settings


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_makes_a_key_and_the_next_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "admin.key"
    assert ensure_key_file(path)
    made = path.read_text(encoding="utf-8")
    assert made.startswith("pl_")
    assert not ensure_key_file(path)
    assert path.read_text(encoding="utf-8") == made
    assert Settings(_env_file=None, admin_key_file=path).read_admin_key() == made.strip()
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_the_group_reads_it_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "metrics.key"
    ensure_key_file(path, group_reads=True)
    assert mode_of(path) == 0o640
    assert Settings(_env_file=None, metrics_key_file=path).read_metrics_key()


def test_two_files_never_hold_the_same_key(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ensure_key_file(tmp_path / name)
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()


def test_what_a_killed_run_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "admin.key"
    ensure_key_file(path)
    key = path.read_text()
    path.rename(tmp_path / "elsewhere")
    (tmp_path / f".admin.key.{os.getpid()}").write_text("pl_half")
    assert ensure_key_file(path)
    assert path.read_text() not in (key, "pl_half")


def test_where_nothing_can_be_written_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyFileUnwritable, match=r"admin\.key"):
        ensure_key_file(tmp_path / "file" / "admin.key")
