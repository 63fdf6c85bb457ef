"""What a model is, from its header: shape, tokenizer, kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.model_files import TRUNK, write
from fixtures.tiny_models import TinyModels

from app.errors import ModelFileUnreadable
from app.inventory.models import ModelFile, ModelKind, read_model


def test_an_ordinary_model(tmp_path: Path) -> None:
    path = write(
        tmp_path / "target.gguf",
        "qwen3moe",
        {
            "general.name": "Tiny",
            "general.file_type": 15,
            "context_length": 4096,
            "block_count": 1,
            "embedding_length": 8,
            "expert_count": 128,
            "expert_used_count": 8,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.mask_token_id": 3,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.add_eos_token": False,
            "tokenizer.chat_template": "{{ messages }}",
        },
    )
    model = read_model(path)
    assert (model.path, model.parts, model.size_bytes) == (path, (path,), path.stat().st_size)
    assert (model.architecture, model.name, model.kind) == ("qwen3moe", "Tiny", ModelKind.TARGET)
    assert (model.context_length_trained, model.block_count, model.embedding_length) == (4096, 1, 8)
    assert (model.expert_count, model.expert_used_count) == (128, 8)
    assert (model.tokenizer_model, model.vocabulary_size) == ("gpt2", 4)
    assert (model.bos_token_id, model.eos_token_id, model.mask_token_id) == (1, 2, 3)
    assert (model.add_bos_token, model.add_eos_token, model.has_chat_template) == (True, False, True)
    assert (model.has_own_embeddings, model.has_own_head) == (True, True)
    assert (model.quantisation, model.largest_type) == ("Q4_K_M", "F32")
    assert (model.nextn_layers, model.has_nextn_tensors) == (0, False)
    assert set(model.tensors) == set(TRUNK)


def test_what_a_header_leaves_out_is_none(tmp_path: Path) -> None:
    model = read_model(write(tmp_path / "bare.gguf", tensors=("blk.0.attn_q.weight",), tokens=None))
    absent: list[object] = [
        model.name,
        model.context_length_trained,
        model.embedding_length,
        model.vocabulary_size,
        model.tokenizer_model,
        model.tokenizer_fingerprint,
        model.bos_token_id,
        model.add_bos_token,
        model.block_size,
        model.target_layers,
        model.target_hidden_size,
        model.quantisation,
    ]
    assert absent == [None] * len(absent)
    assert (model.has_own_embeddings, model.has_own_head, model.has_chat_template) == (False, False, False)


def test_a_vocabulary_without_tokens_is_counted_by_embeddings_or_key(tmp_path: Path) -> None:
    by_rows = write(tmp_path / "rows.gguf", tensors=("token_embd.weight",), tokens=None)
    by_key = write(tmp_path / "key.gguf", keys={"vocab_size": 77}, tensors=("blk.0.x",), tokens=None)
    assert read_model(by_rows).vocabulary_size == 4
    assert read_model(by_key).vocabulary_size == 77


def test_an_unknown_file_type_is_named_by_its_number(tmp_path: Path) -> None:
    model = read_model(write(tmp_path / "new.gguf", keys={"general.file_type": 999}, dtype=np.float16))
    assert (model.quantisation, model.largest_type) == ("file-type-999", "F16")


def test_the_fingerprint_follows_type_and_texts_of_the_tokens_only(tmp_path: Path) -> None:
    def fingerprint(name: str, **changes: Any) -> str | None:
        return read_model(write(tmp_path / name, **changes)).tokenizer_fingerprint

    plain = fingerprint("a.gguf")
    assert plain is not None
    assert fingerprint("b.gguf", architecture="qwen3", keys={"tokenizer.ggml.bos_token_id": 2}) == plain
    assert fingerprint("c.gguf", tokens=("a", "b", "c", "e")) != plain
    assert fingerprint("d.gguf", tokens=("a", "b", "c", "d", "e")) != plain
    assert fingerprint("e.gguf", tokens=("ab", "", "c", "d")) != plain


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", 100_000, "from 0 to 4096 as llama.block_count, saw 100000"),
        ("block_count", "two", "as llama.block_count, saw 'two'"),
        ("context_length", [], "llama.context_length"),
        ("general.name", 7, "expected text as general.name, saw 7"),
        ("target_layers", 7, "expected an array of whole numbers as llama.target_layers, saw 7"),
        ("general.architecture", "", "the name of an architecture as general.architecture, saw ''"),
        ("general.architecture", "a\nb", "general.architecture, saw 'a\\nb'"),
        ("general.architecture", "a" * 100_000, "as general.architecture, saw 'aaa"),
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    if key == "general.architecture":
        path = write(tmp_path / "bad.gguf", architecture=value)
    elif value == []:
        path = write(tmp_path / "bad.gguf", keys={key: ["x"]})
    else:
        path = write(tmp_path / "bad.gguf", keys={key: value})
    with pytest.raises(ModelFileUnreadable) as caught:
        read_model(path)
    assert message in caught.value.message
    assert len(caught.value.message) < 1000


def test_a_name_of_any_length_is_cut(tmp_path: Path) -> None:
    model = read_model(write(tmp_path / "long.gguf", keys={"general.name": "n" * 5000}))
    assert model.name == "n" * 255


def test_a_model_file_is_a_value(tmp_path: Path) -> None:
    model: ModelFile = read_model(write(tmp_path / "m.gguf"))
    with pytest.raises(AttributeError):
        model.block_count = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        model.tensors["x"] = None  # type: ignore[index]


NEXTN = "blk.{}.nextn.eh_proj.weight"
DSPARK = ("fc.weight", "blk.0.attn_q.weight", "markov_w1.weight", "markov_w2.weight")


@pytest.mark.parametrize(
    ("architecture", "keys", "tensors", "kind"),
    [
        ("llama", {"block_count": 1}, TRUNK, ModelKind.TARGET),
        ("llama", {"block_count": 1}, TRUNK[:2], ModelKind.TARGET),
        ("qwen35", {"block_count": 2, "nextn_predict_layers": 1}, (*TRUNK, NEXTN.format(1)), ModelKind.TARGET),
        ("qwen35", {"block_count": 2, "nextn_predict_layers": 1}, (TRUNK[0], NEXTN.format(1)), ModelKind.MTP_ONLY),
        ("glm4moe", {"block_count": 1, "nextn_predict_layers": 1}, (NEXTN.format(0),), ModelKind.MTP_ONLY),
        ("dflash", {"block_count": 1}, ("fc.weight", "blk.0.attn_q.weight"), ModelKind.DFLASH),
        ("dflash", {"block_count": 1}, DSPARK, ModelKind.DSPARK),
        ("eagle3", {"block_count": 1}, ("fc.weight", "blk.0.attn_q.weight"), ModelKind.EAGLE3),
        ("gemma4-assistant", {"block_count": 1}, TRUNK, ModelKind.ASSISTANT),
        ("clip", {}, ("v.blk.0.attn_q.weight",), ModelKind.PROJECTOR),
        ("llama", {"block_count": 1, "general.type": "adapter"}, TRUNK, ModelKind.UNKNOWN),
        ("controlvector", {"layer_count": 1}, ("direction.1",), ModelKind.CONTROL_VECTOR),
        ("llama", {"block_count": 1, "general.type": "model"}, TRUNK, ModelKind.TARGET),
        ("llama", {"block_count": 1}, ("blk.0.attn_q.weight.lora_a",), ModelKind.UNKNOWN),
        ("llama", {"block_count": 1}, (), ModelKind.UNKNOWN),
    ],
)
def test_kind(tmp_path: Path, architecture: str, keys: dict[str, Any], tensors: tuple[str, ...], kind: str) -> None:
    assert read_model(write(tmp_path / "any.gguf", architecture, keys, tensors)).kind == kind


@pytest.mark.parametrize(
    ("tensors", "present"),
    [((*TRUNK, NEXTN.format(2)), True), ((*TRUNK, NEXTN.format(1)), False), (TRUNK, False)],
)
def test_mtp_layers_need_tensors_where_the_key_says(tmp_path: Path, tensors: tuple[str, ...], present: bool) -> None:
    path = write(tmp_path / "mtp.gguf", "qwen35", {"block_count": 3, "nextn_predict_layers": 1}, tensors)
    model = read_model(path)
    assert (model.nextn_layers, model.has_nextn_tensors) == (1, present)


@pytest.mark.parametrize(
    ("key", "tensor", "has_head"),
    [(None, True, True), (True, True, True), (False, True, False), (True, False, False), (None, False, False)],
)
def test_confidence_head_needs_tensor_and_no_denial(
    tmp_path: Path, key: bool | None, tensor: bool, has_head: bool
) -> None:
    keys: dict[str, Any] = {"block_count": 1, "block_size": 7, "target_layers": [2, 10, 18]}
    if key is not None:
        keys["has_confidence_head"] = key
    tensors = (*DSPARK, "conf_proj.weight") if tensor else DSPARK
    model = read_model(write(tmp_path / "dspark.gguf", "dflash", keys, tensors))
    assert model.has_confidence_head is has_head
    assert (model.block_size, model.target_layers) == (7, (2, 10, 18))
    assert (model.has_own_embeddings, model.has_own_head) == (False, False)


def test_eagle3_says_what_it_reads_of_the_target(tmp_path: Path) -> None:
    keys = {"block_count": 1, "target_layers": [1, 2, 3], "target_hidden_size": 2048}
    model = read_model(write(tmp_path / "eagle3.gguf", "eagle3", keys, ("fc.weight", "d2t")))
    assert (model.target_layers, model.target_hidden_size) == ((1, 2, 3), 2048)


@pytest.mark.parametrize(
    ("name", "architecture", "kind", "own"),
    [
        ("dense_target", "llama", ModelKind.TARGET, True),
        ("moe_target", "qwen3moe", ModelKind.TARGET, True),
        ("mtp_target", "qwen35", ModelKind.TARGET, True),
        ("mtp_moe_target", "qwen35moe", ModelKind.TARGET, True),
        ("draft", "llama", ModelKind.TARGET, True),
        ("dspark", "dflash", ModelKind.DSPARK, False),
        ("dspark_own_head", "dflash", ModelKind.DSPARK, True),
        ("dflash", "dflash", ModelKind.DFLASH, False),
        ("dflash_own_head", "dflash", ModelKind.DFLASH, True),
        ("eagle3", "eagle3", ModelKind.EAGLE3, False),
        ("eagle3_own_head", "eagle3", ModelKind.EAGLE3, True),
    ],
)
def test_models_that_the_engine_runs(
    tiny: TinyModels, name: str, architecture: str, kind: ModelKind, own: bool
) -> None:
    model = read_model(getattr(tiny, name))
    target = read_model(tiny.dense_target)
    assert (model.architecture, model.kind) == (architecture, kind)
    assert (model.has_own_embeddings, model.has_own_head) == (own, own)
    assert model.tokenizer_fingerprint == target.tokenizer_fingerprint is not None
    assert (model.vocabulary_size, model.context_length_trained, model.largest_type) == (256, 4096, "F32")
    drafts = kind in (ModelKind.DSPARK, ModelKind.DFLASH, ModelKind.EAGLE3)
    assert model.target_layers == ((1, 2, 3) if drafts else None)
    assert model.target_hidden_size == (target.embedding_length if kind is ModelKind.EAGLE3 else None)
    assert model.block_size == (16 if architecture == "dflash" else None)
    assert model.expert_count == (4 if "moe" in architecture else 0)
    mtp = architecture.startswith("qwen35")
    assert model.block_count == (5 if mtp else 4 if "target" in name else 1)
    assert model.nextn_layers == (1 if mtp else 0)
    assert model.has_nextn_tensors is mtp
    assert model.has_confidence_head is False
