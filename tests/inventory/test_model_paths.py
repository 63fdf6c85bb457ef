"""Where a model file may lie, and what is said when it is not there."""

import time
from pathlib import Path

import pytest
from fixtures.model_files import write, write_set

from app.errors import ModelFileMissing, ModelFileOutside, ModelFileUnreadable
from app.inventory.model_paths import gguf_files
from app.inventory.models import read_model, resolve_model_path


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        (folder / "sub").mkdir(parents=True)
    return first, second


def test_relative_paths_are_looked_up_in_order(folders: tuple[Path, Path]) -> None:
    first, second = folders
    write(second / "only-second.gguf")
    write(second / "both.gguf")
    write(first / "both.gguf")
    write(first / "sub" / "deep.gguf")
    assert resolve_model_path("only-second.gguf", folders) == second / "only-second.gguf"
    assert resolve_model_path("both.gguf", folders) == first / "both.gguf"
    assert resolve_model_path("sub/deep.gguf", folders) == first / "sub" / "deep.gguf"
    assert resolve_model_path("sub/../both.gguf", folders) == first / "both.gguf"


def test_absolute_paths_inside_a_folder(folders: tuple[Path, Path]) -> None:
    path = write(folders[1] / "sub" / "deep.gguf")
    assert resolve_model_path(str(path), folders) == path


@pytest.mark.parametrize("exists", [True, False])
def test_paths_that_leave_the_folders_are_refused_alike(
    tmp_path: Path, folders: tuple[Path, Path], exists: bool
) -> None:
    """Whether a file outside exists must not show."""
    outside = tmp_path / "secret.gguf"
    if exists:
        write(outside)
    sibling = tmp_path / "first-but-longer"
    sibling.mkdir()
    for text in ("../secret.gguf", "sub/../../secret.gguf", str(outside), str(sibling / "x.gguf"), "/etc/passwd"):
        with pytest.raises(ModelFileOutside) as caught:
            resolve_model_path(text, folders)
        assert "PACELINE_MODEL_DIRS" in caught.value.message
        assert caught.value.details["folders"] == [str(folder) for folder in folders]


def test_links_out_of_the_folders_are_refused(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    first, second = folders
    outside = tmp_path / "outside"
    outside.mkdir()
    write(outside / "secret.gguf")
    (first / "file.gguf").symlink_to(outside / "secret.gguf")
    (first / "folder").symlink_to(outside)
    (first / "nothing.gguf").symlink_to(outside / "absent.gguf")
    for text in ("file.gguf", "folder/secret.gguf", "nothing.gguf", str(first / "file.gguf")):
        with pytest.raises(ModelFileOutside):
            resolve_model_path(text, folders)
    (first / "loop.gguf").symlink_to("loop.gguf")
    with pytest.raises(ModelFileMissing):
        resolve_model_path("loop.gguf", folders)
    assert not (second / "file.gguf").exists()


def test_links_within_the_folders_keep_their_name(folders: tuple[Path, Path]) -> None:
    """Download caches link part names to files that are named by their digest."""
    first, second = folders
    for index, path in enumerate(write_set(second)):
        blob = path.rename(second / f"blob{index}")
        (first / "sub" / path.name).symlink_to(blob)
    found = resolve_model_path("sub/big-00002-of-00003.gguf", folders)
    assert found == first / "sub" / "big-00002-of-00003.gguf"
    assert len(read_model(found).parts) == 3


def test_a_part_that_links_outside_is_refused_with_its_set(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    paths = write_set(folders[0])
    moved = paths[2].rename(tmp_path / "elsewhere.gguf")
    paths[2].symlink_to(moved)
    with pytest.raises(ModelFileOutside):
        resolve_model_path(paths[0].name, folders)


def test_a_model_folder_may_itself_be_a_link(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    path = write(folders[0] / "m.gguf")
    (tmp_path / "link").symlink_to(folders[0])
    assert resolve_model_path("m.gguf", [tmp_path / "link"]) == path
    assert resolve_model_path(str(tmp_path / "link" / "m.gguf"), [folders[0]]) == path


def test_missing_files_name_the_folders_and_near_names(folders: tuple[Path, Path]) -> None:
    write(folders[1] / "sub" / "Qwen3-30B-Q4_K_M.gguf")
    with pytest.raises(ModelFileMissing) as caught:
        resolve_model_path("qwen3-30b-q4_k_s.gguf", folders)
    message = caught.value.message
    assert "did you mean sub/Qwen3-30B-Q4_K_M.gguf?" in message
    assert all(str(folder) in message for folder in folders)
    assert caught.value.details["near"] == ["sub/Qwen3-30B-Q4_K_M.gguf"]
    with pytest.raises(ModelFileMissing, match="put the file there"):
        resolve_model_path("entirely different", folders)


def test_no_folders_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelFileOutside, match="PACELINE_MODEL_DIRS"):
        resolve_model_path("m.gguf", [])
    with pytest.raises(ModelFileMissing):
        resolve_model_path("m.gguf", [tmp_path / "absent"])


@pytest.mark.parametrize("text", ["", ".", "sub"])
def test_a_folder_is_not_a_model(folders: tuple[Path, Path], text: str) -> None:
    with pytest.raises(ModelFileUnreadable, match="is a folder"):
        resolve_model_path(text, folders)


@pytest.mark.parametrize("text", ["nul\0byte", "lone\ud800surrogate", "long" * 100_000, "a/" * 5000 + "b", "x" * 300])
def test_texts_that_no_file_can_have(folders: tuple[Path, Path], text: str) -> None:
    with pytest.raises(ModelFileMissing) as caught:
        resolve_model_path(text, folders)
    assert len(caught.value.message.encode("utf-8")) < 2000


def test_near_names_among_very_many_are_found_in_time(folders: tuple[Path, Path]) -> None:
    for index in range(3000):
        (folders[0] / f"model-with-a-rather-long-and-similar-name-{index:05d}-Q4_K_M.gguf").touch()
    started = time.monotonic()
    with pytest.raises(ModelFileMissing) as caught:
        resolve_model_path("model-with-a-rather-long-and-similar-name-Q4_K_M.gguf", folders)
    assert time.monotonic() - started < 10.0
    assert len(caught.value.details["near"]) == 3


def test_the_walk_for_files_is_bounded_and_follows_no_links(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    deep = folder / "1" / "2" / "3" / "4"
    (deep / "5").mkdir(parents=True)
    for place in (folder, deep, deep / "5"):
        (place / "m.gguf").touch()
    (folder / "notes.txt").touch()
    (folder / "round").symlink_to(folder)
    assert list(gguf_files(folder, 100)) == [folder / "m.gguf", deep / "m.gguf"]
    for index in range(20):
        (folder / f"{index}.gguf").touch()
    assert len(list(gguf_files(folder, 10))) <= 10
    assert list(gguf_files(tmp_path / "absent", 10)) == []
