"""Command lines: every flag of the engine, any words at all, and the way back from what is launched."""

import re
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import HELP, case, profile
from hypothesis import given, settings
from hypothesis import strategies as st

from app.llama_server.command_line import CommandLineInvalid, Known, NoteKind, parse_command_line, parse_text
from app.llama_server.command_tables import KNOWN, OLD_NAMES, REMOVED, SWITCHES, VARIABLES
from app.llama_server.extra_args import is_allowed
from app.llama_server.flags import LaunchFiles, launch_flags
from app.llama_server.help_text import is_removed, parse_flags
from app.placement.resolve import resolve
from app.profiles.profile import LaunchProfile, parse_profile

FLAGS = parse_flags(HELP)
TWO_CARDS = Known(("CUDA0", "CUDA1"))


@pytest.mark.parametrize("name", sorted(FLAGS))
@pytest.mark.parametrize("known", [Known(), Known(flags=FLAGS)], ids=["alone", "engine"])
def test_every_flag_of_the_engine_has_its_note(name: str, known: Known) -> None:
    values = ["1"] if FLAGS[name].takes_value else []
    if name == "--control-vector-layer-range":
        values = ["1", "2"]
    words = ["llama-server", "-m", "t.gguf", name, *values, "-np", "1", "-c", "512", "-ngl", "all", "-cram", "0"]
    parsed = parse_command_line(words, known=known)
    about = [n for n in parsed.notes if n.said.startswith(name) and n.kind is not NoteKind.IMPLIED]
    assert about, parsed.notes
    # Its value was not taken for a flag, nor the flag after it for its value.
    assert parsed.profile_document["context"]["slots"] == 1
    assert not [note for note in parsed.notes if note.said in ("1", "2")]
    if is_allowed(name):
        assert parsed.profile_document["extra_args"] == [name, *values]
    assert all(note.message or note.field for note in parsed.notes)
    parse_profile(parsed.profile_document)


def test_flags_without_a_value_are_those_of_the_engine() -> None:
    listed = {name for name, flag in FLAGS.items() if not flag.takes_value}
    assert listed - SWITCHES == set()
    assert {name for name in SWITCHES if name in FLAGS and FLAGS[name].takes_value} == set()


def test_only_flags_that_the_engine_refuses_are_called_old() -> None:
    accepted = {name for name, flag in FLAGS.items() if not is_removed(flag)}
    assert not accepted & set(OLD_NAMES)
    assert {old.today for old in OLD_NAMES.values()} <= accepted
    # Still listed, and says itself that it does nothing any more.
    assert accepted & set(REMOVED) == {"-dt", "--defrag-thold"}


def test_variables_are_those_of_the_engine() -> None:
    listed = {match: flag for flag in FLAGS.values() for match in re.findall(r"\(env: (\w+)\)", flag.text)}
    for variable, name in VARIABLES.items():
        assert name in listed[variable].names


WORDS = st.one_of(
    st.sampled_from(sorted(KNOWN)),
    st.sampled_from(["0", "-1", "1,2", "on", "none", "a=b", "", "-", "é"]),
    st.text(max_size=5),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_any_words_come_to_a_valid_profile(words: list[str]) -> None:
    parsed = parse_command_line(["llama-server", *words, "-m", "t.gguf"])
    if parsed.is_complete:
        parse_profile(parsed.profile_document)
    assert all(note.message or note.field for note in parsed.notes)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab -\\\n'\"#$~;|&><=1", max_size=60))
def test_any_text_is_read_or_named_unreadable(text: str) -> None:
    try:
        parse_text(f"llama-server -m t.gguf {text}")
    except CommandLineInvalid as problem:
        assert problem.problems  # noqa: PT017 - either end is right


TOKENS = st.integers(1, 64)
DEVICES = st.sampled_from([None, ["CUDA0"], ["CUDA1", "CUDA0"]])
TYPES = st.sampled_from(["f16", "q8_0", "bf16"])
LAYERS = st.one_of(st.sampled_from(["all", "auto"]), st.integers(0, 90))
EXPERTS = st.one_of(st.just("all"), st.integers(0, 90))


@st.composite
def speculations(draw: st.DrawFn) -> dict[str, Any]:
    method = draw(st.sampled_from(["none", "mtp", "dspark", "dflash", "eagle3", "draft", "ngram-mod", "ngram-map-k"]))
    if method == "none":
        return {}
    found: dict[str, Any] = {"method": method}
    if method.startswith("ngram"):
        ngram = {"match_length": draw(TOKENS), "draft_length_max": draw(TOKENS)}
        part = "draft_length_min" if method == "ngram-mod" else "min_hits"
        return {**found, "ngram": {**ngram, part: draw(TOKENS)}}
    found |= {"draft_tokens_max": draw(TOKENS), "draft_tokens_min": draw(st.integers(0, 9))}
    found |= {"draft_probability_min": draw(st.sampled_from([0.0, 0.25, 0.6]))}
    if draw(st.booleans()):
        found |= {"also": ["ngram-simple"], "ngram": {"match_length": 3, "draft_length_max": 4, "min_hits": 2}}
    if method != "mtp":
        found["draft"] = {
            "path": "/m/d.gguf", "device": draw(st.sampled_from(["CUDA0", "none"])), "gpu_layers": draw(LAYERS),
            "k_type": draw(TYPES), "v_type": draw(TYPES), "cpu_moe_layers": draw(EXPERTS),
        }  # fmt: skip
    return found


@st.composite
def profiles(draw: st.DrawFn) -> LaunchProfile:
    devices = draw(DEVICES)
    return profile(
        target={"path": "/m/t.gguf"},
        projector=draw(st.sampled_from([None, "/m/p.gguf"])),
        speculation=draw(speculations()),
        placement={
            "devices": devices, "gpu_layers": draw(LAYERS), "cpu_moe_layers": draw(EXPERTS), "fit": draw(st.booleans()),
            "split_mode": draw(st.sampled_from(["none", "layer", "row", "tensor"])),
            "main_gpu": draw(st.integers(0, 1)),
            "tensor_split": draw(st.sampled_from([None, [18, 24.5]])),
            "override_tensor": draw(st.sampled_from([[], ["a=CPU", "b=CUDA0"]])),
        },
        context={
            "size": draw(st.integers(256, 1 << 20)), "slots": draw(st.integers(1, 8)),
            "unified_kv": draw(st.booleans()),
            "k_type": draw(TYPES), "v_type": draw(TYPES), "batch_size": draw(TOKENS), "ubatch_size": draw(TOKENS),
            "flash_attention": draw(st.sampled_from(["on", "off", "auto"])),
            "threads": draw(st.sampled_from([None, 8])), "prompt_cache_bytes": draw(st.integers(0, 9000)) << 20,
        },
        extra_args=draw(st.sampled_from([[], ["--temp", "0.7", "--jinja"]])),
    )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(profiles())
def test_what_is_launched_reads_back_as_its_profile(wanted: LaunchProfile) -> None:
    draft = wanted.speculation.draft
    files = LaunchFiles(
        Path(wanted.target.path),
        Path(draft.path) if draft else None,
        Path(wanted.projector) if wanted.projector else None,
    )
    flags = launch_flags(wanted, resolve(case(wanted, device_names=("CUDA0", "CUDA1"))), files)
    parsed = parse_command_line(["llama-server", *flags, *wanted.extra_args], known=TWO_CARDS)
    assert parse_profile(parsed.profile_document) == wanted
    assert {note.kind for note in parsed.notes} <= {
        NoteKind.TRANSLATED, NoteKind.KEPT, NoteKind.DROPPED, NoteKind.IMPLIED,
    }  # fmt: skip
