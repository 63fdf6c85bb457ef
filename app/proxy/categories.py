"""What kind of work a request asks for: the six tasks of Spec-Bench, `code`, and `other`. Pure, and cheap.

Drafts that shine on one kind are useless on another, so speeds are told by kind. A client may say the category itself;
else it is guessed from the last turn of the user, by the words in it. No text is kept.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from app.proxy.asgi import Header
from app.proxy.headers import header
from app.proxy.request_body import RequestBody
from app.proxy.user_turns import user_turns

# The task stands at the beginning or at the end of a turn; what lies between is material.
_HEAD_CHARACTERS: Final = 400
_TAIL_CHARACTERS: Final = 300
_LONG_CHARACTERS: Final = 1200
_SHORT_CHARACTERS: Final = 300


class Category(StrEnum):
    """Names as Spec-Bench has them, and two more."""

    MULTI_TURN = "multi_turn"
    TRANSLATION = "translation"
    SUMMARIZATION = "summarization"
    QA = "qa"
    MATH_REASONING = "math_reasoning"
    RAG = "rag"
    CODE = "code"
    OTHER = "other"


_TRANSLATION: Final = frozenset(
    "translate translation translating übersetze übersetzen übersetzung traduire traduis traduisez traduction traduce "
    "traducir traducción traduzir traduza".split()
)
_SUMMARIZATION: Final = frozenset(
    "summary summaries summarise summarize summarising summarizing tldr takeaways zusammenfassung zusammenfassen "
    "résumé résume résumer résumez resumen resumir".split()
)
_CODE: Final = frozenset(
    "python javascript typescript rust golang java kotlin swift php ruby sql bash regex html css json yaml refactor "
    "debug traceback stacktrace compiler compile unittest pytest git diff api endpoint dockerfile".split()
)
_CODE_SYMBOLS: Final = ("```", "</", "=> {")
_CODE_MARKS: Final = ("c++", "c#", "#include", "def ", "class ", "function ", "select * ", "import ")
_CODE_MARK_WORDS: Final = frozenset("c include def class function select import".split())
_CODE_ORDERS: Final = frozenset("function script program class query code test tests method".split())
_ORDERS: Final = frozenset("write fix implement complete add optimise optimize".split())
_MATH: Final = frozenset(
    "solve calculate compute evaluate integrate differentiate prove simplify equation derivative integral probability "
    "percent percentage remainder triangle polynomial".split()
)
_MATH_MARKS: Final = ("how many", "how much")
_FORMULAS: Final = ("\\frac", "\\sqrt", "\\sum", "\\int")
_OPERATORS: Final = "-+*/^=\u00d7\u00f7"
_SUM: Final = re.compile(rf"\d ?[{_OPERATORS}] ?\d")
_MATERIAL_MARKS: Final = (
    "context:", "context [", "passage:", "passages:", "passages.", "document:", "documents:", "source:", "sources:",
    "excerpt:", "excerpts:", "search results:", "<context", "<document", "<passage", "<source", "according to the text",
    "according to the passage", "according to the document", "according to the context", "based on the context",
    "based on the passage", "based on the document", "based on the text", "based only on", "based solely on",
)  # fmt: skip
_MATERIAL_WORDS: Final = frozenset(
    "context passage passages document documents source sources excerpt excerpts results text based".split()
)
_SIGNS: Final = frozenset({"how"}).union(
    _TRANSLATION, _SUMMARIZATION, _CODE, _CODE_ORDERS, _CODE_MARK_WORDS, _ORDERS, _MATH, _MATERIAL_WORDS
)
_QUESTION: Final = frozenset(
    "who what when where which why how is are was were do does did can could should would will wer wann wo welche "
    "warum wie ist qui que quand où pourquoi comment qué quién cuándo dónde".split()
)
_WORD: Final = re.compile(r"\w+")
_ASCII_WORDS: Final = {number: " " for number in range(128) if not _WORD.match(chr(number))}


def categorise(user_turns: Sequence[str]) -> Category:
    """The category of a request from its user's turns, the last one last; `other` where nothing tells."""
    last = user_turns[-1].strip() if user_turns else ""
    if not last:
        return Category.OTHER
    task = last
    if len(last) > _HEAD_CHARACTERS + _TAIL_CHARACTERS:
        task = f"{last[:_HEAD_CHARACTERS]}\n{last[-_TAIL_CHARACTERS:]}"
    task = task.lower()
    words = _words(task)
    told = _told(task, words, len(last))
    if told is not None:
        return told
    asks = task.endswith(("?", "\uff1f")) or (bool(words) and words[0] in _QUESTION)
    if asks and len(last) > _LONG_CHARACTERS:
        return Category.RAG
    if len(user_turns) > 1:
        return Category.MULTI_TURN
    return Category.QA if asks and len(last) <= _SHORT_CHARACTERS else Category.OTHER


def _told(task: str, words: Sequence[str], turn_characters: int) -> Category | None:
    """What the words of a task say by themselves, the most telling first."""
    # Most turns hold none of the words that tell, and without them most of the marks cannot be there either.
    signs = _SIGNS.intersection(words)
    told: Category | None = None
    if not signs.isdisjoint(_TRANSLATION):
        told = Category.TRANSLATION
    elif not signs.isdisjoint(_SUMMARIZATION) or "tl;dr" in task:
        told = Category.SUMMARIZATION
    elif turn_characters > _SHORT_CHARACTERS and _has_material(task, signs):
        told = Category.RAG
    elif _is_of_code(task, signs):
        told = Category.CODE
    elif _is_of_mathematics(task, signs):
        told = Category.MATH_REASONING
    return told


def _has_material(task: str, signs: frozenset[str]) -> bool:
    return not signs.isdisjoint(_MATERIAL_WORDS) and _holds_any(task, _MATERIAL_MARKS)


def _is_of_code(task: str, signs: frozenset[str]) -> bool:
    if not signs.isdisjoint(_CODE) or (not signs.isdisjoint(_ORDERS) and not signs.isdisjoint(_CODE_ORDERS)):
        return True
    if not signs.isdisjoint(_CODE_MARK_WORDS) and _holds_any(task, _CODE_MARKS):
        return True
    return _holds_any(task, _CODE_SYMBOLS)


def _is_of_mathematics(task: str, signs: frozenset[str]) -> bool:
    if not signs.isdisjoint(_MATH) or ("how" in signs and _holds_any(task, _MATH_MARKS)):
        return True
    if "\\" in task and _holds_any(task, _FORMULAS):
        return True
    return _holds_any(task, _OPERATORS) and _SUM.search(task) is not None


def _holds_any(task: str, marks: Sequence[str]) -> bool:
    for mark in marks:  # noqa: SIM110 - any() with a generator takes twice as long
        if mark in task:
            return True
    return False


def _words(task: str) -> Sequence[str]:
    # The same for both, and for ASCII in a third of the time.
    return task.translate(_ASCII_WORDS).split() if task.isascii() else _WORD.findall(task)


def said_category(text: str | None) -> Category | None:
    """What a client says itself; None where it is no category."""
    try:
        return Category(text.strip().lower()) if text else None
    except ValueError:
        return None


def category_of(headers: Sequence[Header], body: RequestBody) -> str:
    """The category of a request: what its client says in `X-Paceline-Category`, else what its last turn tells."""
    said = header(headers, b"x-paceline-category")
    own = said_category(said.decode("latin-1")) if said is not None else None
    return (own or categorise(user_turns(body))).value
