"""What cannot be opened: nothing there, folders, pipes, links, names in no encoding."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.gguf_bytes import ARCHITECTURE, DEADLINE_SECONDS, file_bytes, refusal

from app.errors import ModelFileError, ModelFileMissing, ModelFileUnreadable
from app.inventory.gguf import read_header


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissing, match=r"absent\.gguf"):
        read_header(tmp_path / "absent.gguf")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelFileMissing):
        read_header(tmp_path / "file" / "below.gguf")
    for name in ("nul\0byte.gguf", "lone\ud800surrogate.gguf", "long" * 100):
        with pytest.raises(ModelFileMissing) as caught:
            read_header(tmp_path / name)
        caught.value.message.encode("utf-8")


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    with pytest.raises(ModelFileUnreadable, match="symbolic links"):
        read_header(tmp_path / "loop.gguf")
    (tmp_path / "dangling.gguf").symlink_to("nothing")
    with pytest.raises(ModelFileMissing):
        read_header(tmp_path / "dangling.gguf")


def test_a_folder_and_an_empty_file(tmp_path: Path) -> None:
    assert "a folder" in refusal(tmp_path).message
    (tmp_path / "empty.gguf").write_bytes(b"")
    assert "an empty file" in refusal(tmp_path / "empty.gguf").message


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    errors: list[ModelFileError] = []

    def read() -> None:
        try:
            read_header(path)
        except ModelFileError as error:
            errors.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(DEADLINE_SECONDS)
    assert not reader.is_alive()
    assert "a pipe" in errors[0].message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(written: Callable[[bytes], Path]) -> None:
    path = written(file_bytes((ARCHITECTURE,)))
    path.chmod(0)
    assert "Permission denied" in refusal(path).message


def test_a_file_name_in_no_encoding_can_still_be_shown(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff\n\x1b[2Jname.gguf"))
    path.write_bytes(b"nope")
    assert r"bad\udcff\n\x1b[2Jname.gguf: expected" in refusal(path).message
