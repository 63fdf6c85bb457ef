"""An answer put together from a stream is the engine's own answer, feature by feature, on both engines."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fixtures.fragment_model import only, write_fragments
from fixtures.tiny_models import TinyModels
from fixtures.two_ways import CHAT, TEXT, TwoWays, Ways, engine

from app.proxy.endpoints import Endpoint

TEMPLATE = Path(__file__).parents[1] / "fixtures" / "marked_chat.jinja"
CONTEXT_TOKENS = 1024
MESSAGES: Any = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"town": "Zürich"}}\n</tool_call>'
OTHER_CALL = '<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>'
HALF_CALL = '<tool_call>\n{"name": "weather", "arguments": {"town": "'
FRAGMENTS = (
    CALL, OTHER_CALL, HALF_CALL, 'Genève"}}', "\n</tool_call>", "<tool_call>", "<think>\n", "\n</think>\n\n", "</",
    "Hello", " world", "\n\n", "😀", "€", '{"a": ',
)  # fmt: skip
TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": TOWN}},
    {"type": "function", "function": {"name": "nothing", "parameters": {"type": "object", "properties": {}}}},
]
PAIR = {"type": "object", "properties": {"a": {"enum": ["x", "€"]}, "b": {"type": "boolean"}}, "required": ["a", "b"]}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.engine)])
def program(request: pytest.FixtureRequest) -> Path | None:
    """The engine to start; None is the embedded one."""
    return None if request.param == "embedded" else request.getfixturevalue("engine_path")


@pytest.fixture(scope="module")
def ways(program: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoWays]:
    """A model of fragments, under a template with marks for reasoning and tools."""
    folder = tmp_path_factory.mktemp("fragments")
    model = write_fragments(folder / "fragments.gguf", FRAGMENTS)
    template = ("--chat-template-file", str(TEMPLATE))
    with engine(program, folder, "-m", str(model), "-c", str(CONTEXT_TOKENS), *template) as started:
        yield started


@pytest.fixture(scope="module")
def speculating(program: Path | None, tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[TwoWays]:
    """A target whose draft model is wrong after one letter."""
    words = ("-m", str(tiny.dense_target), "-md", str(tiny.wrong_draft), "--spec-type", "draft-simple", "-c", "1024")
    with engine(program, tmp_path_factory.mktemp("speculating"), *words) as started:
        yield started


def chat(**more: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "temperature": 0, **more}


def text(**more: Any) -> dict[str, Any]:
    return {"prompt": "abc", "temperature": 0, **more}


def saying(words: str) -> dict[str, Any]:
    """The model says exactly this, in tokens of one byte, and ends."""
    escaped = words.replace("\n", "\\n").replace('"', '\\"')
    return {"grammar": f'root ::= "{escaped}"', "max_tokens": 200}


def by_chance(seed: int, *said: str, ends: bool = True, **more: Any) -> dict[str, Any]:
    """The model says any of these, in an order that the seed decides."""
    return chat(temperature=1, top_k=0, seed=seed, logit_bias=only(FRAGMENTS, said, and_ends=ends), **more)


def assert_equal(both: Ways) -> None:
    assert both.assembled_status == both.status
    assert both.assembled == both.answer
    assert not both.may_differ


SAMPLING: tuple[Mapping[str, Any], ...] = (
    {"temperature": 1.5, "seed": 7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9, "top_n_sigma": 3},
    {"temperature": 9, "seed": 1, "repeat_last_n": 8, "repeat_penalty": 1.3, "presence_penalty": 1},
    {"frequency_penalty": 0.5, "xtc_probability": 0.5, "xtc_threshold": 0.1, "seed": 4, "temperature": 20},
    {"dynatemp_range": 1, "dynatemp_exponent": 2, "min_keep": 2, "samplers": ["top_k", "temperature"], "seed": 5},
    {"dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 1, "dry_penalty_last_n": 64},
    {"dry_multiplier": 0.8, "dry_sequence_breakers": ["c"]},
    {"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.2, "seed": 3, "temperature": 5},
    {"logit_bias": {"98": 300}, "ignore_eos": True},
    {"n": 1, "logprobs": False, "n_probs": 0, "echo": False, "stream": False, "top_logprobs": None},
    {"cache_prompt": False}, {"cache_prompt": True, "id_slot": 0, "n_keep": 2, "n_cache_reuse": 4},
    {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "s"},
    {"prompt_cache_key": "k", "model": "any"},
)  # fmt: skip


@pytest.mark.parametrize("more", SAMPLING, ids="-".join)
@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_what_steers_the_sampling(ways: TwoWays, endpoint: Endpoint, more: Mapping[str, Any]) -> None:
    both = ways.ask(endpoint, {**(chat() if endpoint is CHAT else text()), "max_tokens": 12, **more})
    assert both.status == 200
    assert both.was_stream
    assert_equal(both)


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens", "n_predict"])
@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_a_limit(ways: TwoWays, endpoint: Endpoint, limit: str) -> None:
    both = ways.ask(endpoint, {**(chat() if endpoint is CHAT else text()), limit: 5})
    assert both.choice["finish_reason"] == "length"
    assert_equal(both)


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_a_context_that_is_full(ways: TwoWays, endpoint: Endpoint) -> None:
    both = ways.ask(endpoint, chat() if endpoint is CHAT else text())
    assert dict(dict(both.answer)["usage"])["total_tokens"] == CONTEXT_TOKENS
    assert_equal(both)


@pytest.mark.parametrize("words", ["x", "", "é€😀ab", 'a "quoted"\n\n line\n'], ids=repr)
@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_words_and_an_end_mark(ways: TwoWays, endpoint: Endpoint, words: str) -> None:
    both = ways.ask(endpoint, {**(chat() if endpoint is CHAT else text()), **saying(words)})
    assert both.choice["finish_reason"] == "stop"
    assert (both.message["content"] if endpoint is CHAT else both.choice["text"]) == words
    assert_equal(both)


@pytest.mark.parametrize("stop", ["€", ["€😀"], ["b€", "nothing"], ["zz"], "ab", ["😀c", "d"]], ids=repr)
@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_stop_strings(ways: TwoWays, endpoint: Endpoint, stop: Any) -> None:
    # The characters of more than one byte come in several tokens, so a stop string begins and ends within them.
    both = ways.ask(endpoint, {**(chat() if endpoint is CHAT else text()), **saying("ab€😀cd"), "stop": stop})
    assert both.choice["finish_reason"] == "stop"
    if stop == "ab" and endpoint is CHAT:
        # Nothing is left of the message, and the engine shows such a one as it was; here there was nothing.
        assert both.may_differ
        assert both.are_equal
    else:
        assert_equal(both)


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_what_the_engine_keeps_back_at_a_limit_is_said_to_be_uncertain(ways: TwoWays, endpoint: Endpoint) -> None:
    """Half a character, and the beginning of a stop string: after some limits they are lost, after others not."""
    body = {**(chat() if endpoint is CHAT else text()), **saying("aé€b😀cdef"), "stop": ["cdx", "def!"]}
    asked = [ways.ask(endpoint, {**body, "max_tokens": limit}) for limit in range(1, 18)]
    assert {both.status for both in asked} == {200}
    assert any(both.may_differ and not both.are_equal for both in asked)
    assert all(both.may_differ or both.are_equal for both in asked)
    assert sum(not both.may_differ for both in asked) > len(asked) / 3


@pytest.mark.parametrize("reasoning_format", ["none", "auto", "deepseek", None])
@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("limit", [200, 12])
def test_reasoning(ways: TwoWays, reasoning_format: str | None, thinks: bool, limit: int) -> None:
    words = saying("<think>\nabc €\n</think>\n\nxyz")
    more: dict[str, Any] = {"reasoning_format": reasoning_format} if reasoning_format else {}
    more["chat_template_kwargs"] = {"enable_thinking": thinks}
    both = ways.ask(CHAT, chat(**words, **more) | {"max_tokens": limit})
    assert ("reasoning_content" in both.message) == (thinks and reasoning_format != "none")
    assert_equal(both)


def test_reasoning_that_is_empty_is_said_to_be_uncertain(ways: TwoWays) -> None:
    both = ways.ask(CHAT, chat(**saying("<think>\n\n</think>\n\n")))
    assert both.may_differ
    assert both.message["content"]
    assert not both.are_equal


@pytest.mark.parametrize("effort", ["none", "low", "high"])
def test_reasoning_effort(ways: TwoWays, effort: str) -> None:
    assert_equal(ways.ask(CHAT, chat(reasoning_effort=effort, max_tokens=8)))


@pytest.mark.parametrize("more", [
    {"response_format": {"type": "text"}, "max_tokens": 9},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_object", "schema": PAIR}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "pair", "schema": PAIR}}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": PAIR}}, "max_tokens": 7},
], ids=str)  # fmt: skip
def test_response_formats(ways: TwoWays, more: Mapping[str, Any]) -> None:
    bias = [[ord(letter), 20] for letter in '{}"']
    assert_equal(ways.ask(CHAT, chat(**{"max_tokens": 60, "logit_bias": bias, **more})))


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_a_schema_beside_the_openai_api(ways: TwoWays, endpoint: Endpoint) -> None:
    body = {**(chat() if endpoint is CHAT else text()), "json_schema": PAIR, "max_tokens": 100}
    assert_equal(ways.ask(endpoint, body))


@pytest.mark.parametrize("messages", [
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [{"role": "system", "content": "x"}, *MESSAGES, {"role": "assistant", "content": "y"}, *MESSAGES],
    [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Rome"}'}}
    ]}, {"role": "tool", "tool_call_id": "1", "content": "sun"}],
], ids=["parts", "turns", "tool"])  # fmt: skip
def test_messages(ways: TwoWays, messages: Any) -> None:
    assert_equal(ways.ask(CHAT, chat(messages=messages, tools=TOOLS, max_tokens=6)))


@pytest.mark.parametrize("tool_choice", ["auto", "required", "none", {"type": "function"}], ids=str)
@pytest.mark.parametrize("parallel", [True, False, None])
def test_tool_calls(ways: TwoWays, tool_choice: Any, parallel: bool | None) -> None:
    counts = set()
    for seed in range(8):
        more = {"tools": TOOLS, "tool_choice": tool_choice, "parallel_tool_calls": parallel, "max_tokens": 60}
        both = ways.ask(CHAT, by_chance(seed, CALL, OTHER_CALL, "\n", **more))
        assert both.are_equal
        if both.status == 200 and both.choice["finish_reason"] == "tool_calls":
            assert not both.may_differ
            counts.add(len(both.message["tool_calls"]))
    assert bool(counts) == (tool_choice != "none")
    assert tool_choice == "none" or max(counts) > 1


def test_messages_of_any_fragments(ways: TwoWays) -> None:
    """Marks in any order, whole and broken, cut anywhere: calls, reasoning and content."""
    seen = set()
    for seed in range(120):
        said = FRAGMENTS[seed % 3 :: 1 + seed % 4]
        more = {"tools": TOOLS, "parallel_tool_calls": seed % 2 == 0} if seed % 5 else {}
        both = ways.ask(CHAT, by_chance(seed, *said, max_tokens=(3, 6, 10, 25)[seed % 4], **more))
        assert both.may_differ or both.are_equal, (seed, both)
        if both.status == 200:
            seen |= {both.choice["finish_reason"], *both.message, both.may_differ}
    assert {"length", "stop", "tool_calls", "reasoning_content", True, False} <= seen


def test_speculation(speculating: TwoWays) -> None:
    for endpoint, body in ((CHAT, chat(max_tokens=40)), (TEXT, text(max_tokens=40))):
        both = speculating.ask(endpoint, body)
        timings = dict(dict(both.answer)["timings"])
        assert 0 < timings["draft_n_accepted"] < timings["draft_n"]
        assert_equal(both)


@pytest.mark.parametrize("stop", ["ef", ["fgx", "cdefz"]])
def test_speculation_and_stop_strings(speculating: TwoWays, stop: Any) -> None:
    asked = [speculating.ask(TEXT, text(max_tokens=limit, stop=stop)) for limit in range(1, 16)]
    assert all(both.may_differ or both.are_equal for both in asked)
    assert not all(both.may_differ for both in asked)


def test_cached_tokens_are_in_the_usage(ways: TwoWays) -> None:
    cached = []
    for cache_prompt in (True, False):
        both = ways.ask(CHAT, chat(max_tokens=3, cache_prompt=cache_prompt))
        assert_equal(both)
        details = dict(dict(dict(both.answer)["usage"])["prompt_tokens_details"])
        cached.append(details["cached_tokens"])
    assert cached[0] > cached[1] == 0


@pytest.mark.parametrize(("status", "body"), [
    (400, chat(messages=[{"role": "user", "content": "x" * CONTEXT_TOKENS}])),
    (400, chat(max_tokens=-5)),
    (400, chat(tool_choice="bogus")),
    (400, chat(tools=TOOLS, grammar='root ::= "x"')),
], ids=["context", "limit", "choice", "grammar"])  # fmt: skip
def test_errors_before_the_start_are_no_streams(ways: TwoWays, status: int, body: Mapping[str, Any]) -> None:
    both = ways.ask(CHAT, body)
    assert not both.was_stream
    assert both.status == status
    assert_equal(both)


def test_an_error_within_the_stream(ways: TwoWays) -> None:
    # A mark of reasoning in the place of a call is more than the grammar of the call takes.
    said = ("<tool_call>", "\n</think>\n\n")
    asked = (ways.ask(CHAT, by_chance(seed, *said, tools=TOOLS, max_tokens=12)) for seed in range(20))
    refused = [both for both in asked if both.status == 500]
    assert refused
    for both in refused:
        assert both.was_stream
        assert_equal(both)


def test_why_a_continued_message_is_refused(ways: TwoWays) -> None:
    begun = [*MESSAGES, {"role": "assistant", "content": "xyz"}]
    body = chat(messages=begun, continue_final_message=True, add_generation_prompt=False, max_tokens=3)
    both = ways.ask(CHAT, body, must_be_proven=False)
    assert both.message["content"].startswith("xyz")
    assert not both.are_equal
