"""Rules on vocabularies. Texts are compared where files are read; here the outcome is given."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by
from fixtures.model_files import TRUNK, write
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import ModelFile, read_model
from app.placement.rules import vocabulary

TOKENS = [f"t{n}" for n in range(300)]


def speculating(method: str) -> Any:
    return profile(speculation={"method": method, "draft": {"path": "d.gguf"}})


def model(folder: Path, name: str, tokens: Sequence[str] | None = TOKENS, **keys: Any) -> ModelFile:
    said = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return read_model(write(folder / f"{name}.gguf", "llama", {"block_count": 1, **said}, TRUNK, tokens=tokens))


def refused(target: ModelFile, draft: ModelFile) -> bool:
    judged = case(speculating("draft"), target=target, draft=draft)
    if vocabulary.draft_vocabulary(judged) is None:
        return False
    found_by(vocabulary.draft_vocabulary, judged, "draft-vocabulary", Severity.ERROR)
    return True


@pytest.mark.parametrize(("size", "expected"), [(300, False), (172, False), (171, True), (301, True)])
def test_a_draft_has_at_most_128_tokens_fewer_and_none_more(size: int, expected: bool, tmp_path: Path) -> None:
    target = model(tmp_path, "target")
    assert refused(target, model(tmp_path, "draft", [*TOKENS, "more"][:size])) is expected


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        ({"add_bos_token": True, "bos_token_id": 1}, {"add_bos_token": True, "bos_token_id": 1}, False),
        ({"add_bos_token": True, "bos_token_id": 1}, {"add_bos_token": True, "bos_token_id": 2}, True),
        ({"add_bos_token": False, "bos_token_id": 1}, {"add_bos_token": False, "bos_token_id": 2}, False),
        ({"add_bos_token": True, "bos_token_id": 1}, {"add_bos_token": False, "bos_token_id": 1}, True),
        # Where a file is silent the engine decides by how it splits text.
        ({"pre": "llama-bpe", "bos_token_id": 1}, {"add_bos_token": True, "bos_token_id": 1}, False),
        ({"pre": "llama-bpe", "bos_token_id": 1}, {"bos_token_id": 1}, True),
        ({"add_eos_token": True, "eos_token_id": 3}, {"add_eos_token": True, "eos_token_id": 3}, False),
        ({"add_eos_token": True, "eos_token_id": 3}, {"add_eos_token": True, "eos_token_id": 4}, True),
        ({"add_eos_token": False, "eos_token_id": 3}, {"eos_token_id": 4}, False),
    ],
)
def test_texts_begin_and_end_alike(
    target: dict[str, Any], draft: dict[str, Any], expected: bool, tmp_path: Path
) -> None:
    assert refused(model(tmp_path, "target", **target), model(tmp_path, "draft", **draft)) is expected


def test_tokenizers_are_of_one_type(tmp_path: Path) -> None:
    target = model(tmp_path, "target")
    assert not refused(target, replace(target, tokenizer_model="hybriddna"))
    assert refused(target, replace(target, tokenizer_model="llama"))


def test_texts_of_the_common_ids_are_equal(tiny: TinyModels) -> None:
    judged = case(speculating("draft"), target=read_model(tiny.dense_target), draft=read_model(tiny.draft))
    assert vocabulary.draft_vocabulary(judged) is None
    different = replace(judged, first_different_token=7)
    found = found_by(vocabulary.draft_vocabulary, different, "draft-vocabulary", Severity.ERROR)
    assert found.observed == "token 7 differs"


@pytest.mark.parametrize("method", ["dflash", "dspark", "eagle3"])
def test_other_drafters_share_the_targets_tokenizer(method: str, tiny: TinyModels, tmp_path: Path) -> None:
    draft = read_model(getattr(tiny, method))
    same = case(speculating(method), target=read_model(tiny.dense_target), draft=draft)
    assert vocabulary.draft_tokenizer(same) is None
    assert vocabulary.draft_vocabulary(same) is None
    other = case(speculating(method), target=model(tmp_path, "target"), draft=draft)
    found_by(vocabulary.draft_tokenizer, other, "draft-tokenizer", Severity.ERROR, overridable=True)


def test_mtp_from_a_file_shares_it_too(tiny: TinyModels, tmp_path: Path) -> None:
    draft = read_model(tiny.mtp_target)
    assert vocabulary.draft_tokenizer(case(speculating("mtp"), target=read_model(tiny.mtp_target), draft=draft)) is None
    other = case(speculating("mtp"), target=model(tmp_path, "target"), draft=draft)
    found_by(vocabulary.draft_tokenizer, other, "draft-tokenizer", Severity.ERROR, overridable=True)


def test_a_drafter_without_a_vocabulary_is_not_known_to_fit(tiny: TinyModels) -> None:
    silent = replace(read_model(tiny.dflash), tokenizer_fingerprint=None)
    judged = case(speculating("dflash"), target=read_model(tiny.dense_target), draft=silent)
    found_by(vocabulary.draft_tokenizer, judged, "draft-tokenizer", Severity.WARNING)


def test_an_ordinary_draft_is_not_asked_for_its_fingerprint(tiny: TinyModels, tmp_path: Path) -> None:
    judged = case(speculating("draft"), target=model(tmp_path, "target"), draft=read_model(tiny.draft))
    assert vocabulary.draft_tokenizer(judged) is None
