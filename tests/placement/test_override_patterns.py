"""Patterns of tensor overrides: read as `std::regex` reads them, and never searched for without end."""

import pytest

from app.placement.override_patterns import Refusal, look_for

KINDS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
NAMES = [f"blk.{layer}.{kind}.weight" for layer in range(94) for kind in KINDS] + ["output.weight", "token_embd.weight"]
# Every way to split a name into short pieces is tried, and no text that the rest needs is missing.
SLOW = "(.|..|...)" * 12 + "[!?]"


def found(pattern: str, names: list[str] = NAMES) -> list[str]:
    matches = look_for((pattern,), names)
    assert matches.refused == {}
    return list(matches.first)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("exps", 282),
        (r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", 282),
        (r"blk\.(1[0-9]|2[0-9])\.ffn_.*_exps", 60),
        (r"^blk\.\d+\.(?!attn_)", 94 * 4),
        (r"blk\.(?!1\.)[0-9]\.attn_q", 9),
        (r"^(?:output|token_embd)\.weight$", 2),
        (r"^(?=.*exps).*up", 94),
        (r"blk\.[0-9]{1}\.ffn_norm", 10),
        (r"blk\.[[:digit:]]+\.attn_[^qkv]", 94),
        (r"BLK", 0),
        (r"weight.", 0),
        (r"\bq\b", 0),
        (r"blk\.9?3\.attn_q\b", 2),
        (r"[\w.]+_exps\.weight", 282),
        (r".+?exps.*?$", 282),
    ],
)
def test_patterns_that_people_write(pattern: str, count: int) -> None:
    assert len(found(pattern)) == count


@pytest.mark.parametrize(
    ("pattern", "name", "is_found"),
    [
        # As libstdc++ answers; `regex` and `re` read some of them otherwise, left alone.
        ("[[a]", "[", True),
        ("[a&&b]", "&", True),
        ("[a||b]", "|", True),
        ("[a~~b]", "~", True),
        ("[a-]", "-", True),
        ("[^-]", "-", False),
        (r"[^\w-]", "a-", False),
        (r"[\]]", "]", True),
        (r"a\-b", "a-b", True),
        ("a#b", "a#b", True),
        (r"\W", "a", False),
        (r"[\W_]", "a", False),
        (r"\s", "a", False),
        ("(a|b)?", "", True),
        ("$", "a", True),
        ("^a$|^b$", "b", True),
        (r"\B", "ab", True),
        ("()", "a", True),
    ],
)
def test_the_engine_and_the_plan_read_alike(pattern: str, name: str, is_found: bool) -> None:
    assert bool(found(pattern, [name])) is is_found
    assert bool(found(pattern, ["zz", name, "zz"]).count(name)) is is_found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<layer>blk)",
        "(?<layer>blk)",
        "(?<=blk)a",
        "(?<!blk)a",
        "(?i)blk",
        "(?>blk)",
        "(?#comment)",
        "(?|a|b)",
        "(?R)",
        "(*FAIL)",
        "a++",
        "a*+",
        "a**",
        "(blk){e<=1}",
        "(a)\\1",
        r"\Ablk",
        r"blk\Z",
        r"\p{L}",
        r"\L<names>",
        r"\Kblk",
        "[]a]",
        "[[a-z]--[aeiou]]",
        r"[\d-a]",
        "[z-a]",
        "[[.a.]]",
        "[a",
        "(a",
        "a)",
        "*a",
        "^*",
        "(?=a)*",
        "(|*a)",
        "a{",
        "a{1,2}x\\",
        "",
        "bl\u00e9",
        "a\n",
        "a" * 257,
    ],
)
def test_what_is_not_the_engine_s_syntax_is_refused(pattern: str) -> None:
    assert look_for((pattern,), NAMES).refused == {pattern: Refusal.UNREADABLE}


@pytest.mark.parametrize(
    "pattern",
    [
        ".?" * 25 + "x!",
        ".*" * 9 + "!",
        "(.|.)" * 40 + "!",
        "^(([a-z0-9_.])*)*!$",
        "(a+)+b",
        "(a|a)*b",
        "(?:(?:a?){20}){20}",
    ],
)
def test_what_the_engine_would_try_for_ever_is_not_tried(pattern: str) -> None:
    assert look_for((pattern,), NAMES).refused == {pattern: Refusal.RUNS_AWAY}


def test_a_slow_pattern_ends_and_the_others_are_found() -> None:
    matches = look_for(("attn_q", SLOW, "exps"), NAMES)
    assert matches.refused == {SLOW: Refusal.TOO_SLOW}
    assert sorted(set(matches.first.values())) == [0, 2]
    assert len(matches.first) == 94 + 282


def test_many_slow_patterns_take_no_more_than_a_few() -> None:
    slow = tuple(SLOW.replace("?", letter) for letter in "<>~@;:'%")
    matches = look_for((*slow, "exps"), NAMES)
    assert set(matches.refused) == set(slow)
    assert set(matches.refused.values()) == {Refusal.TOO_SLOW}
    assert len(matches.first) == 282


def test_the_first_pattern_found_decides() -> None:
    matches = look_for(("ffn_up", "exps", "blk"), NAMES)
    assert [list(matches.first.values()).count(position) for position in range(3)] == [94, 188, 94 * 5]


def test_a_name_with_a_line_end_hides_no_other() -> None:
    assert found("^exps$", ["a\nexps", "exps"]) == ["exps"]
