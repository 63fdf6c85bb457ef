"""What is found in model folders: each model once, damaged ones with their error, nothing through links outwards."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.model_files import write, write_set

from app.inventory.model_scan import ModelScan, ModelShape


def names(folders: list[Path]) -> list[str]:
    return [found.path for found in ModelScan(folders).scan()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models"
    made.mkdir()
    return made


def test_a_model_with_its_shape(folder: Path) -> None:
    keys = {
        "block_count": 3, "context_length": 4096, "embedding_length": 8, "expert_count": 16, "expert_used_count": 2,
        "nextn_predict_layers": 1, "general.name": "A Mix of 16", "general.file_type": 15,
        "tokenizer.chat_template": "{{ messages }}",
    }  # fmt: skip
    tensors = ("token_embd.weight", "blk.0.attn_q.weight", "blk.2.nextn.eh_proj.weight")
    path = write(folder / "mix.gguf", "qwen3moe", keys, tensors)
    (found,) = ModelScan([folder]).scan()
    assert (found.path, found.folder, found.error) == ("mix.gguf", folder, None)
    assert found.shape == ModelShape(
        kind="target", architecture="qwen3moe", name="A Mix of 16", size_bytes=path.stat().st_size, parts=1,
        block_count=3, nextn_layers=1, has_nextn_tensors=True, expert_count=16, expert_used_count=2,
        context_length_trained=4096, embedding_length=8, vocabulary_size=4, tokenizer_model="gpt2",
        quantisation="Q4_K_M", largest_type="F32", block_size=None, has_own_embeddings=True, has_own_head=False,
        has_chat_template=True, has_loadable_names=True,
    )  # fmt: skip


def test_a_split_set_is_one_model(folder: Path) -> None:
    parts = write_set(folder, 3)
    (found,) = ModelScan([folder]).scan()
    assert found.path == "big-00001-of-00003.gguf"
    assert found.shape is not None
    assert (found.shape.parts, found.shape.size_bytes) == (3, sum(part.stat().st_size for part in parts))


@pytest.mark.parametrize(("lost", "named"), [(0, "big-00002-of-00003.gguf"), (2, "big-00001-of-00003.gguf")])
def test_a_set_with_a_part_missing_is_named_once(folder: Path, lost: int, named: str) -> None:
    parts = write_set(folder, 3)
    parts[lost].unlink()
    (found,) = ModelScan([folder]).scan()
    assert found.shape is None
    assert found.error is not None
    assert parts[lost].name in found.error
    if lost:
        assert found.path == named


def test_damaged_files_do_not_hide_the_others(folder: Path) -> None:
    (folder / "a.gguf").write_bytes(b"GGUF")
    (folder / "b-00005-of-00003.gguf").write_bytes(b"GGUF")
    write(folder / "c.gguf")
    (folder / "d.txt").write_text("no model")
    found = ModelScan([folder]).scan()
    assert [(model.path, model.error is None) for model in found] == [
        ("a.gguf", False), ("b-00005-of-00003.gguf", False), ("c.gguf", True),
    ]  # fmt: skip


def test_links_are_followed_inside_and_never_out(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    write(outside / "secret.gguf")
    (folder / "blobs").mkdir()
    write(folder / "blobs" / "file")
    (folder / "named.gguf").symlink_to(folder / "blobs" / "file")
    (folder / "again.gguf").symlink_to(folder / "named.gguf")
    (folder / "away.gguf").symlink_to(outside / "secret.gguf")
    (folder / "folder").symlink_to(outside)
    (folder / "nothing.gguf").symlink_to(folder / "gone.gguf")
    found = {model.path: model for model in ModelScan([folder]).scan()}
    usable = {path for path, model in found.items() if model.shape}
    # Two names of one file are one model.
    assert len(usable) == 1
    assert usable < {"named.gguf", "again.gguf"}
    assert set(found) - usable == {"away.gguf", "nothing.gguf"}
    assert "leads out of the model folders" in str(found["away.gguf"].error)
    assert "link to nothing" in str(found["nothing.gguf"].error)


def test_a_set_with_a_part_that_is_a_link_outwards(folder: Path, tmp_path: Path) -> None:
    parts = write_set(folder, 2)
    parts[1].rename(tmp_path / parts[1].name)
    parts[1].symlink_to(tmp_path / parts[1].name)
    (found,) = ModelScan([folder]).scan()
    assert "leads out of the model folders" in str(found.error)


def test_the_path_is_what_a_profile_writes(folder: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    (second / "sub").mkdir(parents=True)
    write(folder / "same.gguf")
    write(second / "same.gguf")
    write(second / "sub" / "only.gguf")
    assert names([folder, second]) == ["same.gguf", str(second / "same.gguf"), "sub/only.gguf"]


def test_overlapping_folders_list_a_model_once(folder: Path) -> None:
    (folder / "sub").mkdir()
    write(folder / "sub" / "a.gguf")
    assert names([folder, folder / "sub"]) == ["sub/a.gguf"]
    assert names([folder / "sub", folder]) == ["a.gguf"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert names([tmp_path / "absent"]) == []


def test_a_file_is_read_again_only_when_it_has_changed(folder: Path) -> None:
    path = write(folder / "a.gguf", keys={"block_count": 1})
    scan = ModelScan([folder])
    (first,) = scan.scan()
    assert scan.scan()[0].shape is first.shape
    write(path, keys={"block_count": 2})
    os.utime(path, ns=(1, 1))
    (changed,) = scan.scan()
    assert first.shape is not None
    assert changed.shape == replace(first.shape, block_count=2)
    path.write_bytes(b"GGUF")
    assert scan.scan()[0].shape is None
    path.unlink()
    assert scan.scan() == []


def test_a_missing_part_that_arrives(folder: Path, tmp_path: Path) -> None:
    parts = write_set(folder, 2)
    parts[1].rename(tmp_path / "later")
    scan = ModelScan([folder])
    assert scan.scan()[0].shape is None
    (tmp_path / "later").rename(parts[1])
    assert scan.scan()[0].shape is not None
