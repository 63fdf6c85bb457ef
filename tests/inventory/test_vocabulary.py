import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from fixtures.model_files import write, write_set

from app.errors import ModelFileError
from app.inventory.models import ModelFile, read_model
from app.inventory.vocabulary import first_different_token

TOKENS = [f"token {n} é" for n in range(2_000)]
# Generous: both files are compared in about 6 ms.
DEADLINE_SECONDS = 0.5


def model(folder: Path, name: str, tokens: Sequence[str] | None) -> ModelFile:
    return read_model(write(folder / f"{name}.gguf", keys={"block_count": 1}, tokens=tokens))


@pytest.mark.parametrize("at", [0, 4])
def test_the_first_five_may_differ_also_in_length(at: int, tmp_path: Path) -> None:
    other = [*TOKENS]
    other[at] = "something much longer than it was"
    assert first_different_token(model(tmp_path, "a", TOKENS), model(tmp_path, "b", other)) is None


@pytest.mark.parametrize("text", ["token 7 è", "", "token 7 é and more"])
@pytest.mark.parametrize("at", [5, 999, 1_999])
def test_from_the_sixth_on_texts_are_equal(at: int, text: str, tmp_path: Path) -> None:
    other = [*TOKENS]
    other[0], other[at] = "x", text
    assert first_different_token(model(tmp_path, "a", TOKENS), model(tmp_path, "b", other)) == at
    assert first_different_token(model(tmp_path, "c", other), model(tmp_path, "d", TOKENS)) == at


def test_only_what_both_have_is_compared(tmp_path: Path) -> None:
    whole, part = model(tmp_path, "a", TOKENS), model(tmp_path, "b", TOKENS[:1_900])
    assert first_different_token(whole, part) is None
    assert first_different_token(part, whole) is None
    assert first_different_token(whole, model(tmp_path, "c", ["a", "b", "c"])) is None
    assert first_different_token(whole, model(tmp_path, "d", None)) is None


def test_a_split_set_has_its_vocabulary_in_the_first_part(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    parts = write_set(tmp_path / "set")
    assert first_different_token(read_model(parts[2]), read_model(parts[0])) is None


def test_a_file_that_became_shorter_is_a_named_error(tmp_path: Path) -> None:
    whole, other = model(tmp_path, "a", TOKENS), model(tmp_path, "b", TOKENS[:-1])
    other.path.write_bytes(other.path.read_bytes()[:20_000])
    with pytest.raises(ModelFileError):
        first_different_token(whole, other)


def test_150_000_tokens_are_compared_at_once(tmp_path: Path) -> None:
    tokens = [f"token {n}" for n in range(150_000)]
    one, other = model(tmp_path, "a", tokens), model(tmp_path, "b", ["other", *tokens[1:-100]])
    started = time.perf_counter()
    assert first_different_token(one, other) is None
    assert time.perf_counter() - started < DEADLINE_SECONDS
