"""Every flag that a profile can turn into is one that the engine lists, with a value where it takes one."""

import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.inventory.engine import EngineFlag
from app.llama_server.embedded.help import help_text as embedded_help_text
from app.llama_server.environment import child_environment
from app.llama_server.flags import SPEC_TYPES, LaunchFiles, ListenAddress, address_flags, launch_flags
from app.llama_server.help_text import is_removed, parse_flags, parse_spec_types
from app.placement.resolve import NO_DEVICE, ResolvedLaunch
from app.profiles.profile import merge_patch, parse_profile
from app.speculative.parameters import Method

_RECORDED = Path(__file__).parents[1] / "fixtures" / "help_11434.txt"
_FILES = LaunchFiles(Path("/m/target.gguf"), Path("/m/draft.gguf"), Path("/m/projector.gguf"))

_DRAFT = {"path": "draft.gguf", "device": "RPC1", "cpu_moe_layers": 2}
_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"placement": {"devices": ["RPC0", "RPC1"], "tensor_split": [1, 0.5], "split_mode": "row", "main_gpu": 1}},
    {"placement": {"devices": [], "gpu_layers": 0, "fit": True}},
    {"placement": {"cpu_moe_layers": "all", "gpu_layers": "auto"}, "speculation": {"draft": {"cpu_moe_layers": "all"}}},
    {"placement": {"cpu_moe_layers": 3, "override_tensor": ["exps=CPU"], "margin_bytes": 1 << 30}},
    {"projector": "projector.gguf", "serving": {"aliases": ["a", "b"], "idle_timeout_seconds": 5}},
    {"context": {"size": 4096, "slots": 2, "unified_kv": True, "threads": 2, "prompt_cache_bytes": 0}},
    {"context": {"k_type": "q8_0", "v_type": "q8_0", "flash_attention": "on", "batch_size": 64, "ubatch_size": 32}},
    {"speculation": {"also": ["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"]}},
    {"speculation": {"ngram": {"match_length": 3, "draft_length_min": 1, "draft_length_max": 5, "min_hits": 2}}},
    {"speculation": {"draft_tokens_max": 5, "draft_tokens_min": 1, "draft_probability_min": 0.25}},
)


def _emitted() -> Iterator[tuple[str, ...]]:
    """The arguments of every method with every option."""
    for method, option in itertools.product(Method, _OPTIONS):
        draft = {"draft": _DRAFT} if method.takes_draft_model else {"draft": None}
        document = {"id": "p", "target": {"path": "target.gguf"}, "speculation": {"method": method.value, **draft}}
        profile = parse_profile(_laid_over(document, option))
        devices = profile.placement.devices
        resolved = ResolvedLaunch(
            devices=("RPC0", "RPC1") if devices is None else devices,
            context_size=4096,
            context_per_slot=4096 // profile.context.slots,
            draft_device=NO_DEVICE if devices == () else "RPC1",
            draft_gpu_layers="all",
            draft_tokens_max=5,
            prompt_cache_bytes=1 << 20,
        )
        projector = _FILES.projector if profile.projector else None
        files = LaunchFiles(_FILES.target, _FILES.draft if method.takes_draft_model else None, projector)
        flags = launch_flags(profile, resolved, files, rpc=("127.0.0.1:50052", "127.0.0.1:50053"))
        yield (*flags, *address_flags(ListenAddress("/run/x.sock")), *address_flags(ListenAddress(port=8080)))


def _laid_over(document: Mapping[str, Any], option: Mapping[str, Any]) -> Any:
    merged = merge_patch(document, option)
    # A method without a draft model stays without one.
    if document["speculation"]["draft"] is None:
        merged["speculation"].pop("draft", None)
    return merged


def _violations(words: tuple[str, ...], flags: Mapping[str, EngineFlag]) -> list[str]:
    """Where the words are not `flag`, or `flag value`, as the engine reads them."""
    found = []
    position = 0
    while position < len(words):
        name = words[position]
        values = list(itertools.takewhile(lambda word: not word.startswith("-"), words[position + 1 :]))
        known = flags.get(name)
        if known is None or is_removed(known):
            found.append(f"{name}: not listed")
        elif len(values) != int(known.takes_value):
            found.append(f"{name} {values}: takes {int(known.takes_value)}")
        position += 1 + len(values)
    return found


def _all_violations(help_text: str) -> set[str]:
    flags = parse_flags(help_text)
    return {violation for words in _emitted() for violation in _violations(words, flags)}


def _all_names() -> set[str]:
    return {word for words in _emitted() for word in words if word.startswith("--")}


def test_the_check_sees_an_unlisted_flag_and_a_wrong_arity() -> None:
    flags = parse_flags(_RECORDED.read_text())
    words = ("--model", "x.gguf", "--no-such-flag", "--threads", "--metrics", "7", "--draft-max", "5")
    assert _violations(words, flags) == [
        "--no-such-flag: not listed",
        "--threads []: takes 1",
        "--metrics ['7']: takes 0",
        "--draft-max: not listed",
    ]


def test_the_options_reach_every_flag_that_can_be_emitted() -> None:
    source = Path(launch_flags.__code__.co_filename).read_text()
    written = set(re.findall(r'"(--[a-z][a-z-]*[a-z])"', source))
    assert len(written) > 30
    assert written <= _all_names()


def test_flags_against_the_recorded_help() -> None:
    assert _all_violations(_RECORDED.read_text()) == set()


def test_flags_against_the_embedded_engine() -> None:
    # It has no devices at all: a profile that names some is refused there.
    missing = {"--rpc: not listed", "--device: not listed"}
    assert _all_violations(embedded_help_text()) <= missing


@pytest.mark.engine
def test_flags_against_the_real_engine(engine_path: Path, tmp_path: Path) -> None:
    help_text = _help_of(engine_path, tmp_path)
    assert _all_violations(help_text) == set()
    assert set(SPEC_TYPES.values()) <= parse_spec_types(parse_flags(help_text), help_text)


@pytest.mark.engine
def test_the_recorded_help_is_what_the_real_engine_prints(engine_path: Path, tmp_path: Path) -> None:
    assert _help_of(engine_path, tmp_path) == _RECORDED.read_text()


def _help_of(engine_path: Path, folder: Path) -> str:
    environment = child_environment(os.environ, {}, empty_folder=str(folder))
    ran = subprocess.run(
        [engine_path, "--help"], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    return ran.stdout
