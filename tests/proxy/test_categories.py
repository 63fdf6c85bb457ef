"""The classifier on turns as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.proxy.categories import Category, categorise, said_category

LONG = "The mill was built in 1846 by the river and burnt down twice. " * 40

TURNS = [
    ("Translate to German: The weather is fine today.", Category.TRANSLATION),
    ("Bitte übersetze diesen Satz ins Englische: Es regnet.", Category.TRANSLATION),
    (f"{LONG}\n\nSummarize the text above in three sentences.", Category.SUMMARIZATION),
    (f"TL;DR of this, please: {LONG}", Category.SUMMARIZATION),
    (f"Context: {LONG}\n\nQuestion: When was the mill built?", Category.RAG),
    (f"{LONG}\nWho built it, and when?", Category.RAG),
    (f"Answer based only on the following passages.\n{LONG}", Category.RAG),
    ("Write a function that reverses a linked list in place.", Category.CODE),
    ("Why does this fail?\n```python\nprint(x\n```", Category.CODE),
    ("def add(a, b):\n    return a - b", Category.CODE),
    ("A train travels 120 km in 1.5 hours. How many km does it travel in 4 hours?", Category.MATH_REASONING),
    ("Solve x^2 - 5x + 6 = 0.", Category.MATH_REASONING),
    ("What is 17 * 23?", Category.MATH_REASONING),
    ("Who wrote The Brothers Karamazov?", Category.QA),
    ("wann wurde Rom gegründet", Category.QA),
    ("Compose a travel blog post about a trip to Hawaii.", Category.OTHER),
    ("", Category.OTHER),
]


@pytest.mark.parametrize(("turn", "category"), TURNS, ids=[turn[:30] for turn, _ in TURNS])
def test_a_single_turn(turn: str, category: Category) -> None:
    assert categorise([turn]) is category


def test_a_conversation_is_one_unless_its_last_turn_says_more() -> None:
    opening = "Compose a travel blog post about a trip to Hawaii."
    assert categorise([opening, "Rewrite it so that every sentence begins with an A."]) is Category.MULTI_TURN
    assert categorise([opening, "Now translate it to French."]) is Category.TRANSLATION
    assert categorise([]) is Category.OTHER


def test_what_a_client_says_itself() -> None:
    assert said_category("code") is Category.CODE
    assert said_category(" Math_Reasoning ") is Category.MATH_REASONING
    assert said_category("poetry") is None
    assert said_category(None) is None


@given(st.lists(st.text(max_size=5000), max_size=3))
def test_any_text_has_a_category(turns: list[str]) -> None:
    assert isinstance(categorise(turns), Category)


def test_hostile_turns_do_not_run_away() -> None:
    """A pattern that runs away on one of these would be seen: 100 of each must end within the test's own deadline."""
    for text in ("a " * 50_000, "(" * 100_000, "class " * 20_000, "1+" * 50_000, "based on the " * 10_000):
        for _ in range(100):
            categorise([text])
