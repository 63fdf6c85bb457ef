from typing import Any

import pytest
from fixtures.cases import HELP, case, profile

from app.findings import Finding, Severity
from app.llama_server.extra_args import ALLOWED, OWNED_BY_FIELD, PATH_VALUED, is_allowed, read_flags, refusal
from app.llama_server.help_text import parse_flags
from app.llama_server.rules import env_reserved, flag_reserved, flag_unknown, flag_value, method_unsupported
from app.profiles.profile import document_of, merge_patch, parse_profile

FLAGS = parse_flags(HELP)


def fixed(found: Finding, wanted: Any) -> Any:
    return parse_profile(merge_patch(document_of(wanted), found.fixes[0].patch))


@pytest.mark.parametrize("name", ["--draft-max", "--draft_max", "--no-such-flag", "stray"])
def test_unknown_and_removed_flags(name: str) -> None:
    wanted = profile(extra_args=["--temp", "0.5", name])
    (found,) = flag_unknown(case(wanted), ())
    assert (found.rule, found.severity, found.overridable) == ("flag-unknown", Severity.ERROR, False)
    assert fixed(found, wanted).extra_args == ("--temp", "0.5")


def test_an_unknown_flag_goes_with_its_value() -> None:
    wanted = profile(extra_args=["--no-such-flag", "5", "--temp", "0.5"])
    (found,) = flag_unknown(case(wanted), ())
    assert found.observed == "--no-such-flag"
    assert fixed(found, wanted).extra_args == ("--temp", "0.5")


def test_a_removed_flag_names_what_says_it_now() -> None:
    (found,) = flag_unknown(case(profile(extra_args=["--draft-max", "16"])), ())
    assert "speculation.draft_tokens_max" in found.message
    (found,) = flag_unknown(case(profile(extra_args=["--spec-ngram-size-n", "3"])), ())
    assert "--spec-ngram-*-size-n" in found.message


def test_flags_made_from_the_profile_are_checked_too() -> None:
    old = "\n".join(line for line in HELP.splitlines() if "--spec-draft-ngl" not in line)
    (found,) = flag_unknown(case(profile(), help_text=old), ("--spec-draft-ngl", "all", "--temp", "1"))[:1]
    assert "--spec-draft-ngl" in found.message
    assert flag_unknown(case(profile()), ("--spec-draft-ngl", "all")) == []


def test_known_flags_with_their_values_pass() -> None:
    wanted = profile(extra_args=["--temp", "-1", "--seed", "-7", "--no-warmup", "--chat_template", "chatml"])
    assert flag_unknown(case(wanted), ()) == []
    assert flag_reserved(case(wanted)) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-c", "100"], "context.size"),
        (["--model", "/etc/passwd"], "target.path"),
        (["--spec-type", "none"], "speculation.method"),
        (["--host", "0.0.0.0"], "reached"),
        (["--api-key", "x"], "reached"),
        (["--log-file", "/etc/x"], "opens"),
        (["--log-disable"], "reached"),
        (["--path", "/"], "opens"),
        (["--slot-save-path", "/"], "opens"),
        (["-hf", "a/b"], "opens"),
        (["--tools", "all"], "opens"),
        (["--media_path", "/"], "opens"),
        (["--override-kv", "a=int:1"], "user guide"),
        (["--grammar", "root ::= ("], "response_format"),
        (["--grammar-file", "g.gbnf"], "response_format"),
        (["-j", "{}"], "response_format"),
        (["--json-schema", "{}"], "response_format"),
        (["-jf", "s.json"], "response_format"),
        (["--json-schema-file", "s.json"], "response_format"),
    ],
)
def test_reserved_flags_are_refused_with_the_reason(words: list[str], reason: str) -> None:
    wanted = profile(extra_args=[*words, "--temp", "1"])
    (found,) = flag_reserved(case(wanted))
    assert found.rule == "flag-reserved"
    assert reason in found.message
    assert fixed(found, wanted).extra_args == ("--temp", "1")


def test_every_flag_of_this_build_is_allowed_or_refused_with_a_reason() -> None:
    opened = {name for name in FLAGS if is_allowed(name)}
    assert opened.isdisjoint(OWNED_BY_FIELD)
    assert all(refusal(name) for name in FLAGS if name not in opened)
    dangerous = [name for name in opened if any(word in name for word in ("file", "path", "url", "dir", "tool", "mcp"))]
    assert set(dangerous) <= set(PATH_VALUED)


def test_the_tables_name_real_flags() -> None:
    """A flag of an older build may stay, as long as another spelling or its successor is there."""
    from_older_builds = {
        "--typical", "--swa-checkpoints", "--top-nsigma", "--mlock", "--mmap", "--no-mmap", "-dio", "--direct-io",
        "-ndio", "--no-direct-io", "--moe-cache-mib",
    }  # fmt: skip
    named = {name for names in ALLOWED.values() for name in names} | set(PATH_VALUED)
    assert named - set(FLAGS) <= from_older_builds


def test_a_flag_at_the_end_needs_its_value() -> None:
    wanted = profile(extra_args=["--no-warmup", "--temp"])
    (found,) = flag_value(case(wanted))
    assert found.rule == "flag-value"
    assert fixed(found, wanted).extra_args == ("--no-warmup",)
    assert flag_value(case(profile(extra_args=["--temp", "1"]))) == []


@pytest.mark.parametrize(
    "entry",
    [
        "^(([a-z0-9_.])*)*!$=CPU",
        "(a+)+b=CPU",
        "(a|a)*b=CPU",
        f"{'a' * 300}=CPU",
        "blah",
        "=CPU",
        "x=",
        "a,b=CPU",
        "[=CPU",
        "",
    ],
)
def test_overrides_are_a_pattern_and_a_buffer(entry: str) -> None:
    wanted = profile(placement={"override_tensor": ["exps=CPU", entry]})
    (found,) = flag_value(case(wanted))
    assert found.rule == "flag-value"
    assert fixed(found, wanted).placement.override_tensor == ("exps=CPU",)


def test_overrides_as_people_write_them() -> None:
    entries = [r"\.ffn_(up|down|gate)_(ch|)exps=CPU", r"blk\.(1[0-9])\.ffn=CUDA1", "exps=RPC0[127.0.0.1:18191]"]
    assert flag_value(case(profile(placement={"override_tensor": entries}))) == []


def test_overrides_that_the_engine_would_search_for_without_end_say_so() -> None:
    hostile = ".?" * 25 + "x!=CPU"
    (found,) = flag_value(case(profile(placement={"override_tensor": [hostile, "(?i)exps=CPU", "exps=CPU"]})))
    assert "without end" in found.message
    assert "not a regular expression that the engine reads" in found.message
    assert found.observed == f"{hostile}, (?i)exps=CPU"


def test_a_value_is_not_a_flag() -> None:
    read = read_flags(["--chat-template", "--host", "--jinja"], FLAGS)
    assert [(flag.name, flag.at) for flag in read] == [("--chat-template", 1), ("--jinja", None)]


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LLAMA_ARG_CTX_SIZE",
        "PATH",
        "LD_LIBRARY_PATH",
        "XDG_CONFIG_HOME",
        # Of the allowed families, those that load a library or name a file.
        "GGML_BACKEND_PATH",
        "GGML_METAL_PATH_RESOURCES",
        "OMP_TOOL_LIBRARIES",
        "OMP_TOOL",
    ],
)
def test_environment_is_an_allowlist(name: str) -> None:
    wanted = profile(env={name: "x", "CUDA_VISIBLE_DEVICES": "1,0"})
    (found,) = env_reserved(case(wanted))
    assert (found.rule, found.observed) == ("env-reserved", name)
    assert fixed(found, wanted).env == {"CUDA_VISIBLE_DEVICES": "1,0"}


def test_allowed_environment_passes() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", "GGML_CUDA_NO_PINNED": "1", "OMP_NUM_THREADS": "2", "ROCR_VISIBLE_DEVICES": "0"}
    assert env_reserved(case(profile(env=env))) == []


def test_methods_that_the_build_knows() -> None:
    old = HELP.replace("draft-dspark,", "")
    wanted = profile(speculation={"method": "dspark", "draft": {"path": "d.gguf"}})
    (found,) = method_unsupported(case(wanted, help_text=old))
    assert found.rule == "method-unsupported"
    assert fixed(found, wanted).speculation.method == "none"
    assert method_unsupported(case(wanted)) == []
