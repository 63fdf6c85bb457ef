"""The tiny models on the real engine, against the simulation of what they count."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
from fixtures.draft_simulation import simulate_draft, simulate_text
from fixtures.tiny_models import ALWAYS_RIGHT, WRONG_AFTER_D, BigramMachine, TinyModels, write_all

PROGRAM = Path(__file__).parent / "fixtures" / "embedded_completions.py"
REQUESTS: list[dict[str, Any]] = [
    {"prompt": prompt, "n_predict": n_predict}
    for prompt in ("hello abc", "x", "gfe")
    for n_predict in (1, 2, 5, 32, 33, 64)
]


@dataclass(frozen=True)
class Setup:
    """A target, a drafter and the machine inside that drafter."""

    method: str
    target: str
    drafter: str = ""
    machine: BigramMachine = WRONG_AFTER_D


SETUPS = {
    "none": Setup("none", "dense_target"),
    "draft-simple": Setup("draft-simple", "dense_target", "wrong_draft"),
    "draft-simple right": Setup("draft-simple", "dense_target", "draft", ALWAYS_RIGHT),
    "moe target": Setup("draft-simple", "moe_target", "wrong_draft"),
    "draft-mtp": Setup("draft-mtp", "mtp_target"),
    "draft-mtp moe": Setup("draft-mtp", "mtp_moe_target"),
    "draft-dspark": Setup("draft-dspark", "dense_target", "dspark"),
    "draft-dspark own head": Setup("draft-dspark", "dense_target", "dspark_own_head"),
    "draft-dflash": Setup("draft-dflash", "dense_target", "dflash"),
    "draft-dflash own head": Setup("draft-dflash", "dense_target", "dflash_own_head"),
    "draft-eagle3": Setup("draft-eagle3", "dense_target", "eagle3"),
    "draft-eagle3 own head": Setup("draft-eagle3", "dense_target", "eagle3_own_head"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return write_all(tmp_path_factory.mktemp("tiny_models"))


def answers(
    target: Path,
    method: str,
    drafter: Path | None,
    draft_tokens_max: int,
    requests: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    ask = {
        "model": str(target),
        "method": method,
        "draft_model": str(drafter) if drafter else None,
        "draft_tokens_max": draft_tokens_max,
        "requests": requests,
    }
    run = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(ask),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
    )
    assert run.returncode == 0, run.stderr[-4000:]
    printed: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return printed


@pytest.mark.parametrize("draft_tokens_max", [1, 3, 5])
@pytest.mark.parametrize("name", SETUPS)
def test_engine_counts_as_simulated(models: TinyModels, name: str, draft_tokens_max: int) -> None:
    setup = SETUPS[name]
    drafter = getattr(models, setup.drafter) if setup.drafter else None
    expected = []
    for request in REQUESTS:
        counts = simulate_draft(
            setup.method,
            request["prompt"],
            request["n_predict"],
            setup.machine,
            draft_tokens_max,
        )
        text = simulate_text(request["prompt"], request["n_predict"], ALWAYS_RIGHT)
        expected.append({"text": text} | counts._asdict())
    target = getattr(models, setup.target)
    assert answers(target, setup.method, drafter, draft_tokens_max, REQUESTS) == expected


def test_split_target_answers_as_the_whole(models: TinyModels) -> None:
    requests = [{"prompt": "hello abc", "n_predict": 32}]
    first_part = models.dense_target_parts[0]
    split = answers(first_part, "draft-simple", models.wrong_draft, 3, requests)
    assert split == answers(models.dense_target, "draft-simple", models.wrong_draft, 3, requests)


def test_split_carries_the_keys_of_gguf_split(models: TinyModels) -> None:
    parts = [gguf.GGUFReader(part) for part in models.dense_target_parts]
    whole = gguf.GGUFReader(models.dense_target)
    assert [part.name for part in models.dense_target_parts] == [
        f"dense-split-0000{number}-of-00003.gguf" for number in (1, 2, 3)
    ]
    for number, part in enumerate(parts):
        assert part.fields["split.no"].contents() == number
        assert part.fields["split.count"].contents() == 3
        assert part.fields["split.tensors.count"].contents() == len(whole.tensors)
    names = [tensor.name for part in parts for tensor in part.tensors]
    assert names == [tensor.name for tensor in whole.tensors]


@pytest.mark.parametrize("method", ["draft-simple", "draft-dflash", "draft-eagle3"])
@pytest.mark.parametrize("draft_tokens_max", [1, 3, 5])
def test_every_drafter_is_sometimes_right_and_sometimes_wrong(method: str, draft_tokens_max: int) -> None:
    counts = simulate_draft(method, "hello abc", 32, WRONG_AFTER_D, draft_tokens_max)
    assert 0 < counts.draft_n_accepted < counts.draft_n


@pytest.mark.parametrize(
    ("machine", "draft_tokens_max", "counts"),
    [
        (ALWAYS_RIGHT, 3, (23, 23)),
        (ALWAYS_RIGHT, 5, (25, 25)),
        (WRONG_AFTER_D, 3, (28, 21)),
        (WRONG_AFTER_D, 5, (43, 21)),
    ],
)
def test_simulation_gives_the_counts_measured_before(
    machine: BigramMachine, draft_tokens_max: int, counts: tuple[int, int]
) -> None:
    assert simulate_draft("draft-simple", "hello abc", 32, machine, draft_tokens_max) == counts


def test_files_are_the_same_bytes_on_every_run(tmp_path: Path) -> None:
    digests = []
    for run in ("first", "second"):
        folder = tmp_path / run
        folder.mkdir()
        write_all(folder, cycle="abcde", blocks=8, vocabulary_size=300)
        files = sorted(folder.iterdir())
        assert len(files) == 15
        digests.append([(f.name, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files])
    assert digests[0] == digests[1]


def test_other_sizes_run_too(tmp_path: Path) -> None:
    models = write_all(tmp_path, cycle="abcde", wrong_letters="be", blocks=8, vocabulary_size=300)
    machine = BigramMachine("abcde", "be", 300)
    requests = [{"prompt": "ab", "n_predict": 50}]
    for method, drafter in (("draft-dspark", models.dspark), ("draft-eagle3", models.eagle3)):
        [answer] = answers(models.dense_target, method, drafter, 3, requests)
        counts = simulate_draft(method, "ab", 50, machine, 3)
        assert answer == {"text": simulate_text("ab", 50, machine)} | counts._asdict()


@pytest.mark.parametrize(
    ("cycle", "wrong_letters", "vocabulary_size", "complaint"),
    [
        ("ab", "", 256, "3 to 31 letters"),
        ("aab", "", 256, "distinct"),
        ("äbc", "", 256, "ASCII"),
        ("abc", "x", 256, "wrong letters"),
        ("abc", "", 255, "at least 256"),
    ],
)
def test_impossible_machines_are_refused(cycle: str, wrong_letters: str, vocabulary_size: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        BigramMachine(cycle, wrong_letters, vocabulary_size)
