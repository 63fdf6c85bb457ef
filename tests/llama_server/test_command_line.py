"""Raw command lines as people have them -> profiles and notes."""

import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from app.llama_server.command_line import (
    CommandLineInvalid,
    Known,
    Note,
    NoteKind,
    ParsedCommand,
    parse_command_line,
    parse_text,
)
from app.profiles.profile import parse_profile

TWO_CARDS = Known(("CUDA0", "CUDA1"))
# What every line says of itself that says nothing of them.
SLOTS = {"slots": 4, "unified_kv": True}


def parse(line: str, known: Known | None = None) -> ParsedCommand:
    return parse_command_line(shlex.split(line), known=known)


def without(document: Mapping[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in fields}


def notes_of(parsed: ParsedCommand, kind: NoteKind) -> list[tuple[str, str | None, Any]]:
    return [(note.said, note.field, note.value) for note in parsed.notes if note.kind is kind]


def note(parsed: ParsedCommand, said: str) -> Note:
    found = [note for note in parsed.notes if note.said == said]
    assert len(found) == 1, [note.said for note in parsed.notes]
    return found[0]


def test_the_simplest_line_says_what_the_engine_does_unasked() -> None:
    parsed = parse("llama-server -m models/Qwen3-8B-Q4_K_M.gguf")
    assert parsed.profile_document == {
        "id": "qwen3-8b-q4_k_m",
        "target": {"path": "models/Qwen3-8B-Q4_K_M.gguf"},
        "context": SLOTS,
        "placement": {"gpu_layers": "auto", "fit": True},
    }
    assert notes_of(parsed, NoteKind.TRANSLATED) == [
        ("-m models/Qwen3-8B-Q4_K_M.gguf", "target.path", "models/Qwen3-8B-Q4_K_M.gguf")
    ]
    assert notes_of(parsed, NoteKind.IMPLIED) == [
        ("-np", "context.slots", 4),
        ("-kvu", "context.unified_kv", True),
        ("-c", "context.size", None),
        ("-ngl", "placement.gpu_layers", "auto"),
        ("-fit", "placement.fit", True),
        ("-cram", "context.prompt_cache_bytes", None),
        ("-a", "id", "qwen3-8b-q4_k_m"),
    ]
    assert {note.kind for note in parsed.notes} == {NoteKind.TRANSLATED, NoteKind.IMPLIED}


def test_a_line_of_an_older_build_with_a_draft_on_two_cards() -> None:
    parsed = parse(
        "CUDA_VISIBLE_DEVICES=1,0 ./build/bin/llama-server -m /m/Llama-3.3-70B-Q4_K_M-00001-of-00002.gguf -md d.gguf "
        "--draft-max 16 --draft-min 4 --draft-p-min 0.6 -ngl 99 -ngld 99 -ts 18/24 --device 0,1 -fa -c 32768 -np 1 "
        "--no-mmap --mlock --host 0.0.0.0 --port 8080 --jinja --temp 0.7",
        TWO_CARDS,
    )
    assert parsed.profile_document == {
        "id": "llama-3.3-70b-q4_k_m",
        "env": {"CUDA_VISIBLE_DEVICES": "1,0"},
        "target": {"path": "/m/Llama-3.3-70B-Q4_K_M-00001-of-00002.gguf"},
        "speculation": {
            "method": "draft",
            "draft": {"path": "d.gguf", "gpu_layers": 99},
            "draft_tokens_max": 16,
            "draft_tokens_min": 4,
            "draft_probability_min": 0.6,
        },
        "placement": {"devices": ["CUDA0", "CUDA1"], "tensor_split": [18, 24], "gpu_layers": 99, "fit": False},
        "context": {"flash_attention": "on", "size": 32768, "slots": 1},
        "extra_args": ["--jinja", "--temp", "0.7", "--load-mode", "mlock"],
    }
    mode = ["--load-mode", "mlock"]
    assert notes_of(parsed, NoteKind.RENAMED) == [
        ("--draft-max 16", "speculation.draft_tokens_max", 16),
        ("--draft-min 4", "speculation.draft_tokens_min", 4),
        ("--no-mmap", "extra_args", mode),
        ("--mlock", "extra_args", mode),
    ]
    assert notes_of(parsed, NoteKind.CORRECTED) == [
        ("--device 0,1", "placement.devices", ["CUDA0", "CUDA1"]),
        ("-fa", "context.flash_attention", "on"),
    ]
    assert [said for said, _, _ in notes_of(parsed, NoteKind.DROPPED)] == ["--host 0.0.0.0", "--port 8080"]
    assert notes_of(parsed, NoteKind.KEPT) == [
        ("--jinja", "extra_args", ["--jinja"]),
        ("--temp 0.7", "extra_args", ["--temp", "0.7"]),
    ]
    assert "--spec-draft-n-max says it today" in note(parsed, "--draft-max 16").message
    assert "counts cards by speed" in note(parsed, "CUDA_DEVICE_ORDER").message
    assert "infers the method from some kinds" in note(parsed, "--spec-type").message


def test_a_hybrid_line_keeps_its_experts_on_the_host() -> None:
    parsed = parse(
        "nohup numactl --interleave=all llama-server -m moe.gguf -ngl all --n-cpu-moe 20 -ot 'exps=CPU,blk\\.0=CUDA0' "
        "-ot a=CPU -ctk q8_0 -ctv q8_0 -fa on -t 16 -b 4096 -ub 2048 -c 65536 -np 2 -kvu -cram 4096 -fitt 512 -fit on"
    )
    assert without(parsed.profile_document, "id", "target") == {
        "placement": {
            "gpu_layers": "all",
            "cpu_moe_layers": 20,
            "override_tensor": ["exps=CPU", "blk\\.0=CUDA0", "a=CPU"],
            "fit": True,
            "margin_bytes": 512 << 20,
        },
        "context": {
            "k_type": "q8_0",
            "v_type": "q8_0",
            "flash_attention": "on",
            "threads": 16,
            "batch_size": 4096,
            "ubatch_size": 2048,
            "size": 65536,
            "slots": 2,
            "unified_kv": True,
            "prompt_cache_bytes": 4096 << 20,
        },
    }
    assert "Paceline starts the engine itself" in note(parsed, "nohup numactl --interleave=all").message


@pytest.mark.parametrize(
    ("said", "speculation"),
    [
        ("--spec-type draft-dspark -md d.gguf", {"method": "dspark", "draft": {"path": "d.gguf"}}),
        ("--spec-type draft -md d.gguf", {"method": "draft", "draft": {"path": "d.gguf"}}),
        ("--spec-type mtp", {"method": "mtp"}),
        ("--spec-type draft-mtp --draft-n-max 3", {"method": "mtp", "draft_tokens_max": 3}),
        ("--spec-type ngram-mod,draft-mtp", {"method": "mtp", "also": ["ngram-mod"]}),
        ("--spec-type draft-mtp --spec-type ngram-simple", {"method": "mtp", "also": ["ngram-simple"]}),
        ("--spec-type draft-mtp,none", None),
        ("--spec-type none -md d.gguf", {"draft": {"path": "d.gguf"}}),
        ("--draft-model d.gguf -devd none -cmoed", {
            "method": "draft", "draft": {"path": "d.gguf", "device": "none", "cpu_moe_layers": "all"}}),
        ("--spec-default", {"method": "ngram-mod", "ngram": {
            "match_length": 24, "draft_length_min": 48, "draft_length_max": 64}}),
        ("--spec-type ngram-simple --spec-ngram-size-n 8 --spec-ngram-map-k-size-m 9", {
            "method": "ngram-simple", "ngram": {"match_length": 8}}),
        ("--spec-draft-conf-min 0.4", {"draft_probability_min": 0.4}),
        ("-ngld 99 -ctkd q8_0", None),
    ],
)  # fmt: skip
def test_speculation(said: str, speculation: dict[str, Any] | None) -> None:
    parsed = parse(f"llama-server -m t.gguf {said}")
    assert parsed.profile_document.get("speculation") == speculation


@pytest.mark.parametrize(
    ("kind", "method", "is_inferred"),
    [("dspark", "dspark", True), ("mtp_only", "mtp", True), ("eagle3", "eagle3", False), ("target", "draft", False)],
)
def test_a_draft_without_a_method_is_told_what_would_have_become_of_it(
    kind: str, method: str, is_inferred: bool
) -> None:
    parsed = parse(
        "llama-server -m t.gguf -md d.gguf", Known(draft_kind=lambda path: kind if path == "d.gguf" else None)
    )
    said = note(parsed, "--spec-type")
    assert (said.kind, said.value) == (NoteKind.IMPLIED, method)
    assert ("infers the method" in said.message) == is_inferred
    assert ("never uses it" in said.message) != is_inferred


@pytest.mark.parametrize(
    ("said", "context"),
    [
        ("-c 1000", {"size": 1000, **SLOTS}),
        ("", {"size": 2048, **SLOTS}),
        ("-c 0", {"size": 2048, **SLOTS}),
        ("-np 4", {"size": 8192, "slots": 4}),
        ("-np 4 -fit off", {"size": 2048, "slots": 4}),
        ("-np 2 -c 1000", {"size": 1000, "slots": 2}),
        ("-np 2 -c 1000 -kvu", {"size": 1000, "slots": 2, "unified_kv": True}),
        ("-np -1 -no-kvu -c 1000", {"size": 1000, "slots": 4, "unified_kv": False}),
        ("--kv-unified-per-slot 512", {"size": 2048, **SLOTS}),
    ],
)
def test_slots_and_context_as_the_engine_counts_them(said: str, context: dict[str, Any]) -> None:
    parsed = parse(f"llama-server -m t.gguf {said}", Known(trained_length=lambda _: 2048))
    assert parsed.profile_document["context"] == context


@pytest.mark.parametrize(
    ("said", "known", "devices"),
    [
        ("--device 1,0", ("CUDA0", "CUDA1"), ["CUDA1", "CUDA0"]),
        ("-dev 0", ("RPC0", "Vulkan0"), ["Vulkan0"]),
        ("-dev 0", (), ["CUDA0"]),
        ("-dev cuda:1", (), ["CUDA1"]),
        ("-dev vulkan0", ("Vulkan0",), ["Vulkan0"]),
        ("-dev none", ("CUDA0",), []),
        ("-dev CUDA7", ("CUDA0",), ["CUDA7"]),
    ],
)
def test_devices_as_people_name_them(said: str, known: tuple[str, ...], devices: list[str]) -> None:
    parsed = parse(f"llama-server -m t.gguf {said}", Known(known))
    assert parsed.profile_document["placement"]["devices"] == devices
    is_right = said in ("-dev none", "-dev CUDA7")
    assert note(parsed, said).kind is (NoteKind.TRANSLATED if is_right else NoteKind.CORRECTED)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("-hf unsloth/Qwen3-8B-GGUF:Q4_K_M", NoteKind.REFUSED, "downloads"),
        ("-mu https://x/y.gguf", NoteKind.REFUSED, "downloads"),
        ("--tools all", NoteKind.REFUSED, "opens files"),
        ("--slot-save-path /s", NoteKind.REFUSED, "opens files"),
        ("--slot-save /s", NoteKind.REFUSED, "did you mean --slot-save-path"),
        ("--no-such-thing", NoteKind.REFUSED, "would exit"),
        ("stray", NoteKind.REFUSED, "stands where a flag should"),
        ("-c 32k", NoteKind.REFUSED, "not a whole number"),
        ("-c -np 4", NoteKind.REFUSED, "no value"),
        ("-ctk q6_0", NoteKind.REFUSED, "should be"),
        ("-np 0", NoteKind.REFUSED, "0 slots"),
        ("--spec-type magic", NoteKind.REFUSED, "no method"),
        ("--override-kv a=int:1", NoteKind.REFUSED, "not among the flags"),
        ("--defrag-thold 0.1", NoteKind.REMOVED, "defragmentation"),
        ("--ctx-size-draft 4096", NoteKind.REMOVED, "context of its target"),
        ("--metrics", NoteKind.DROPPED, "always on"),
        ("--rpc 10.0.0.2:50052", NoteKind.DROPPED, "PACELINE_RPC=10.0.0.2:50052"),
        ("--no-webui", NoteKind.DROPPED, "page"),
        ("--ngl 99", NoteKind.CORRECTED, "knows -ngl, not --ngl"),
        ("-ctx-size 4096", NoteKind.CORRECTED, "knows --ctx-size"),
        ("--ctx_size 4096", NoteKind.TRANSLATED, ""),
        ("--ctx-size=4096", NoteKind.CORRECTED, "a word of its own"),
        ("--chat-template-file t.jinja", NoteKind.KEPT, "model folder"),
    ],
)
def test_one_flag_and_its_note(said: str, kind: NoteKind, words: str) -> None:
    parsed = parse(f"llama-server -m t.gguf {said}")
    found = next(note for note in parsed.notes if note.said in (said, said.removesuffix(" -np 4")))
    assert found.kind is kind
    assert words in found.message
    parse_profile(parsed.profile_document)


def test_aliases_and_tags() -> None:
    parsed = parse("llama-server -m T.gguf --alias 'Qwen/Qwen3,qwen3,chat' --tags fast,local")
    assert parsed.profile_document["id"] == "qwen3"
    assert parsed.profile_document["serving"] == {"aliases": ["Qwen/Qwen3", "chat"]}
    assert parsed.profile_document["tags"] == ["fast", "local"]
    only_free_text = parse("llama-server -m T.gguf -a Qwen/Qwen3")
    assert only_free_text.profile_document["id"] == "t"
    assert only_free_text.profile_document["serving"] == {"aliases": ["Qwen/Qwen3"]}


def test_of_a_flag_said_twice_the_last_counts() -> None:
    parsed = parse("llama-server -m t.gguf -c 4096 -ngl 1 --ctx-size 8192 --temp 1 --temp 0.5")
    assert parsed.profile_document["context"]["size"] == 8192
    assert parsed.profile_document["extra_args"] == ["--temp", "0.5"]
    assert notes_of(parsed, NoteKind.DROPPED) == [("-c 4096", None, None)]


def test_experts_of_all_layers_are_not_fewer_for_being_counted() -> None:
    parsed = parse("llama-server -m t.gguf -cmoe -ncmoe 3")
    assert parsed.profile_document["placement"]["cpu_moe_layers"] == "all"


def test_secrets_are_not_repeated() -> None:
    parsed = parse(
        "HF_TOKEN=hf_secret LLAMA_API_KEY=sk-secret llama-server -m t.gguf --api-key sk-secret --hf-token=hf_secret"
    )
    assert not any("secret" in repr(note) for note in parsed.notes)
    assert {note.said for note in parsed.notes} >= {"HF_TOKEN=…", "LLAMA_API_KEY=…", "--api-key …", "--hf-token=…"}


def test_variables_are_flags_that_the_line_overrides() -> None:
    parsed = parse(
        "LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_N_GPU_LAYERS=99 LLAMA_ARG_FLASH_ATTN=on LLAMA_ARG_CONT_BATCHING=false "
        "LLAMA_ARG_CPU_MOE=0 LLAMA_ARG_DRAFT_MAX=16 LD_PRELOAD=/x.so GGML_CUDA_GRAPH_OPT=1 llama-server "
        "-m t.gguf -c 4096"
    )
    assert parsed.profile_document["context"] == {"flash_attention": "on", "size": 4096, **SLOTS}
    assert parsed.profile_document["placement"]["gpu_layers"] == 99
    assert parsed.profile_document["env"] == {"GGML_CUDA_GRAPH_OPT": "1"}
    assert parsed.profile_document["extra_args"] == ["--no-cont-batching"]
    assert note(parsed, "LLAMA_ARG_DRAFT_MAX=16").kind is NoteKind.REMOVED
    assert note(parsed, "LLAMA_ARG_CPU_MOE=0").kind is NoteKind.DROPPED
    assert note(parsed, "LD_PRELOAD=/x.so").kind is NoteKind.REFUSED


def test_a_line_without_a_model_is_no_profile() -> None:
    parsed = parse("llama-server -hf a/b")
    assert not parsed.is_complete


@pytest.mark.parametrize(
    ("line", "is_server"),
    [
        ("server -m a.gguf", True),
        ("/opt/llama.cpp/llama-server-cuda -m a.gguf", True),
        ("llama serve -m a.gguf", True),
        ("-m a.gguf -a llama-server", True),
        ("ollama run a", False),
        ("llama-cli -m a.gguf", False),
        ("# llama-server -m a.gguf", False),
    ],
)
def test_what_is_taken_for_a_server(line: str, is_server: bool) -> None:
    if is_server:
        [parsed] = parse_text(line)
        assert parsed.profile_document["target"] == {"path": "a.gguf"}
        assert not notes_of(parsed, NoteKind.REFUSED)
    else:
        with pytest.raises(CommandLineInvalid):
            parse_text(line)


SCRIPT = r"""#!/bin/bash
# my server
set -e
export CUDA_VISIBLE_DEVICES=0,1
cd ~/llama.cpp && exec ./llama-server \
  --model "$MODELS/a b.gguf" \
  # -ngl 99 \
  -c 4096 \
  --samplers 'top_k;min_p' --chat-template-kwargs '{"enable_thinking": false}' \
  2>&1 | tee server.log &
./llama-server -m b.gguf -a one#two > /dev/null; wait
"""


def test_a_script_with_two_servers() -> None:
    first, second = parse_text(SCRIPT)
    assert first.profile_document["target"] == {"path": "$MODELS/a b.gguf"}
    assert first.profile_document["env"] == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert first.profile_document["context"]["size"] == 4096
    assert first.profile_document["extra_args"] == [
        "--samplers", "top_k;min_p", "--chat-template-kwargs", '{"enable_thinking": false}',
    ]  # fmt: skip
    assert notes_of(first, NoteKind.UNEXPANDED) == [("$MODELS", None, None)]
    assert "a comment" in note(first, "-c").message or "a comment" in first.notes[1].message
    assert second.profile_document["serving"] == {"aliases": ["one#two"]}
    assert not notes_of(second, NoteKind.UNEXPANDED)
    assert not notes_of(first, NoteKind.REFUSED)
