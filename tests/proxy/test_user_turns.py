"""Whose turn says what, in bodies of every form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.proxy.categories import Category, categorise
from app.proxy.request_body import RequestBody
from app.proxy.user_turns import user_turns

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}


@pytest.mark.parametrize(
    ("body", "turns"),
    [
        ({"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]}, ["hi"]),
        (
            {
                "messages": [
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "two", "tool_calls": [{"id": 1}]},
                    {"role": "user", "content": [IMAGE, {"type": "text", "text": "three"}]},
                ]
            },
            ["", "three"],
        ),
        ({"prompt": "once upon"}, ["once upon"]),
        ({"prompt": ["a", "b"]}, []),
        ({"prompt": [1, 2]}, []),
        ({"input": "a question"}, ["a question"]),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}]}, ["q"]),
        ({"messages": []}, []),
        ({"messages": "no list"}, []),
        ([], []),
        ({}, []),
    ],
)
def test_bodies(body: object, turns: list[str]) -> None:
    assert list(user_turns(RequestBody(json.dumps(body).encode()))) == turns


def test_a_long_turn_is_looked_at_from_its_beginning() -> None:
    turn = "Summarize this: " + "word " * 100_000
    (seen,) = user_turns(RequestBody(json.dumps({"messages": [{"role": "user", "content": turn}]}).encode()))
    assert len(seen) <= 64 * 1024
    assert categorise([seen]) is Category.SUMMARIZATION


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    assert isinstance(categorise(user_turns(RequestBody(body))), Category)
