"""Split sets: any part leads to the whole, and parts must belong together."""

import os
from pathlib import Path
from typing import Any

import pytest
from fixtures.model_files import write, write_set
from fixtures.tiny_models import TinyModels

from app.errors import ModelFileMissing, ModelFileUnreadable
from app.inventory.models import ModelKind, read_model


@pytest.mark.parametrize("separator", ["-", ".", "_"])
def test_any_part_leads_to_the_whole(tmp_path: Path, separator: str) -> None:
    paths = write_set(tmp_path, separator=separator)
    models = [read_model(path) for path in paths]
    for model in models:
        assert model.path == paths[0]
        assert model.parts == tuple(paths)
        assert model.size_bytes == sum(path.stat().st_size for path in paths)
        assert (model.architecture, model.context_length_trained, model.vocabulary_size) == ("llama", 4096, 2)
        assert list(model.tensors) == ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight"]
        assert model.kind is ModelKind.TARGET
        assert model.has_loadable_names is (separator == "-")


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[1].unlink()
    for path in paths:
        with pytest.raises(ModelFileMissing, match=r"big-00002-of-00003\.gguf") as caught:
            read_model(path)
        assert caught.value.details["missing"] == ["big-00002-of-00003.gguf"]


def test_many_missing_parts_make_a_short_message(tmp_path: Path) -> None:
    path = write(tmp_path / "big-00001-of-01024.gguf")
    with pytest.raises(ModelFileMissing, match="1023 are missing") as caught:
        read_model(path)
    assert len(caught.value.message) < 1000


def test_a_first_part_without_tensors(tmp_path: Path) -> None:
    """llama-gguf-split --no-tensor-first-split writes such a set."""
    split = {"split.count": 2, "split.tensors.count": 1}
    first = write(tmp_path / "m-00001-of-00002.gguf", "llama", {"split.no": 0, "block_count": 1, **split}, ())
    second = {"split.no": 1, **split}
    write(tmp_path / "m-00002-of-00002.gguf", "llama", second, ("blk.0.attn_q.weight",), tokens=None)
    assert list(read_model(first).tensors) == ["blk.0.attn_q.weight"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part2": {"split.count": 4}}, "expected part 2 of 3.*split.count 4"),
        ({"part2": {"split.no": 2}}, "expected part 2 of 3.*split.no 2"),
        ({"part1": {"split.tensors.count": 5}}, "expected 5 tensors in all parts.*saw 3"),
        ({"part3": {"split.tensors.count": 2}}, "expected 2 tensors in all parts.*saw 3"),
    ],
)
def test_parts_that_disagree_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    paths = write_set(tmp_path, **changes)
    with pytest.raises(ModelFileUnreadable, match=message):
        read_model(paths[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    keys = {"split.no": 2, "split.count": 3, "split.tensors.count": 3}
    write(paths[2], "llama", keys, ("token_embd.weight",), tokens=None)
    with pytest.raises(ModelFileUnreadable, match=r"'token_embd\.weight' in two parts"):
        read_model(paths[0])


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    os.truncate(paths[2], paths[2].stat().st_size - 40)
    with pytest.raises(ModelFileUnreadable, match=r"big-00003-of-00003.*truncated"):
        read_model(paths[0])


@pytest.mark.parametrize("name", ["m-00005-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-99999.gguf"])
def test_a_name_that_contradicts_itself(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileUnreadable, match="llama-gguf-split"):
        read_model(write(tmp_path / name))


def test_names_and_headers_must_agree_that_there_is_a_set(tmp_path: Path) -> None:
    renamed = write(tmp_path / "renamed.gguf", keys={"split.no": 0, "split.count": 2})
    with pytest.raises(ModelFileUnreadable, match=r"expected part 1 of 1.*split.count 2"):
        read_model(renamed)
    write(tmp_path / "m-00001-of-00002.gguf")
    write(tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(ModelFileUnreadable, match=r"expected part 1 of 2.*split.count 1"):
        read_model(tmp_path / "m-00001-of-00002.gguf")


def test_a_set_of_one_and_almost_part_names_stand_alone(tmp_path: Path) -> None:
    for name in ("m-00001-of-00001.gguf", "m-0001-of-0002.gguf", "m-00001-of-00002.gguf.bak", "١٢٣٤٥-of-00002.gguf"):
        model = read_model(write(tmp_path / name))
        assert model.parts == (tmp_path / name,)
        assert model.has_loadable_names


def test_a_set_in_three_parts_is_the_same_model_as_one_file(tiny: TinyModels) -> None:
    whole, split = read_model(tiny.dense_target), read_model(tiny.dense_target_parts[2])
    assert split.parts == tiny.dense_target_parts
    assert {name: each.n_bytes for name, each in split.tensors.items()} == {
        name: each.n_bytes for name, each in whole.tensors.items()
    }
    assert split.tokenizer_fingerprint == whole.tokenizer_fingerprint
    assert split.size_bytes == sum(part.stat().st_size for part in split.parts)
