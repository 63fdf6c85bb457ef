"""Values that wait in a file: nothing old comes back, nothing is stuck, whatever is torn, long or gone."""

import json
import os
from pathlib import Path

import pytest

from app.line_file import LineFile

Values = LineFile[list[int]]
RESERVED_BYTES = 64 * 1024
# More than is read at once.
LONG = list(range(300_000))


def opened(path: Path) -> Values:
    file: Values = LineFile(
        path,
        encode=lambda value: json.dumps(value).encode() + b"\n",
        decode=json.loads,
        bytes_most=8 * 1024 * 1024,
        bytes_reserved=RESERVED_BYTES,
    )
    file.open()
    return file


@pytest.mark.parametrize("count", [20, 20_000], ids=["in what is reserved", "in more than that"])
def test_what_is_done_does_not_come_back_behind_a_torn_line(tmp_path: Path, count: int) -> None:
    """A kill can come while a line is written, so that neither its end nor the zero byte behind it is in the file."""
    path = tmp_path / "waiting"
    file = opened(path)
    assert file.append([[number] for number in range(count)]) == count
    file.done(file.front(count))
    while file.rows:
        file.done(file.front(count))
    file.close()
    with path.open("r+b") as torn:
        torn.write(b"[1")
    later = opened(path)
    assert (later.rows, later.all()) == (0, [])
    later.append([[7]])
    assert later.all() == [[7]]
    later.close()
    assert path.stat().st_size == RESERVED_BYTES


def test_nothing_comes_back_from_behind_the_end_that_was_found(tmp_path: Path) -> None:
    """What a version left there that did not blank it."""
    path = tmp_path / "waiting"
    path.write_bytes(b"[1]\n\0" + b"[2]\n" * 100)
    file = opened(path)
    assert file.all() == [[1]]
    file.close()
    assert path.read_bytes().rstrip(b"\0") == b"[1]\n"


def test_a_line_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    file = opened(tmp_path / "waiting")
    assert file.append([LONG, [1], LONG]) == 3
    assert list(file.front(1).values) == [LONG]
    file.close()
    later = opened(tmp_path / "waiting")
    assert later.rows == 3
    assert later.all() == [LONG, [1], LONG]
    later.close()


def test_a_file_that_somebody_emptied_is_done(tmp_path: Path) -> None:
    """Who takes parts off until there is no row would go on for ever."""
    file = opened(tmp_path / "waiting")
    file.append([[1], [2]])
    os.truncate(file.path, 0)
    part = file.front(10)
    assert (list(part.values), part.unreadable) == ([], 2)
    file.done(part)
    assert file.rows == 0
    assert file.append([[3]]) == 1
    assert file.all() == [[3]]
    file.close()
