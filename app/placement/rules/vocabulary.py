"""Rules on vocabularies: a draft is a list of token ids, so an id must mean the same to drafter and target."""

from collections.abc import Callable

from app import findings
from app.findings import Finding, Fix
from app.inventory.models import ModelFile, ModelKind
from app.placement.case import LaunchCase
from app.placement.rules.drafters import WITHOUT_SPECULATION
from app.speculative.parameters import Method

SIZE_DIFFERENCE_MAX = 128

# Names that llama.cpp reads as one type of tokenizer.
_TYPES = {"hybriddna": "gpt2", "whitespace": "gpt2", "gemma4": "gpt2"}
# Where a file does not say whether a begin token is added, llama.cpp decides by these (build 11434).
_MODELS_WITH_BEGIN = frozenset({"llama", "bert"})
_SPLITTERS_WITH_BEGIN = frozenset(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon gemma4".split()
)
_NGRAM = Fix("Draft from repeated text instead", {"speculation": {"method": "ngram-mod", "draft": None}})


def draft_vocabulary(case: LaunchCase) -> Finding | None:
    """With another vocabulary the engine drops the draft and runs without it, or aborts at an id that it lacks."""
    target, draft = case.target, case.draft
    if case.profile.speculation.method is not Method.DRAFT or target is None or draft is None:
        return None
    if draft.kind is not ModelKind.TARGET:
        return None
    difference = _difference(case, target, draft)
    if difference is None:
        return None
    what, expected, observed = difference
    return findings.error(
        "draft-vocabulary",
        f"{draft.path.name} cannot draft for {target.path.name}: {what}.",
        expected=expected,
        observed=observed,
        evidence="tokenizer keys and token texts in the headers of both files",
        fixes=[_NGRAM, WITHOUT_SPECULATION],
    )


def _difference(case: LaunchCase, target: ModelFile, draft: ModelFile) -> tuple[str, str, str] | None:
    """What differs, what is expected and what is there."""
    checks: tuple[tuple[str, Callable[[ModelFile], str]], ...] = (
        ("its tokenizer is of another type", _tokenizer_type),
        ("it begins texts otherwise", _begin_rule),
        ("it ends texts otherwise", _end_rule),
    )
    for what, fact in checks:
        if fact(target) != fact(draft):
            return what, fact(target), fact(draft)
    size, draft_size = target.vocabulary_size, draft.vocabulary_size
    if size is not None and draft_size is not None:
        if draft_size > size:
            return (
                "its vocabulary is larger, and at the first id that the target lacks the server would abort",
                f"at most {size} tokens",
                f"{draft_size} tokens",
            )
        if size - draft_size > SIZE_DIFFERENCE_MAX:
            return (
                f"its vocabulary is smaller by {size - draft_size} tokens",
                f"{size - SIZE_DIFFERENCE_MAX} to {size} tokens",
                f"{draft_size} tokens",
            )
    if case.first_different_token is not None:
        token = case.first_different_token
        return f"token {token} is another text there", "the same text for every id from 5 up", f"token {token} differs"
    return None


def _tokenizer_type(model: ModelFile) -> str:
    name = model.tokenizer_model or "none"
    return _TYPES.get(name, name)


def _begin_rule(model: ModelFile) -> str:
    splitter = model.header.text("tokenizer.ggml.pre")
    adds = model.add_bos_token
    if adds is None or splitter == "gemma4":
        adds = model.tokenizer_model in _MODELS_WITH_BEGIN or splitter in _SPLITTERS_WITH_BEGIN
    return f"begin token {model.bos_token_id} added" if adds else "no begin token added"


def _end_rule(model: ModelFile) -> str:
    adds = model.tokenizer_model == "t5" if model.add_eos_token is None else model.add_eos_token
    return f"end token {model.eos_token_id} added" if adds else "no end token added"


def draft_tokenizer(case: LaunchCase) -> Finding | None:
    """The engine does not compare tokenizers of these methods: it would draft nonsense and verify it."""
    method, target, draft = case.profile.speculation.method, case.target, case.draft
    if not method.takes_draft_model or method is Method.DRAFT or target is None or draft is None:
        return None
    if draft.kind is ModelKind.TARGET and method is not Method.MTP:
        return None
    mine, its = target.tokenizer_fingerprint, draft.tokenizer_fingerprint
    if mine is not None and mine == its:
        return None
    evidence = "tokenizer type and token texts in the headers of both files"
    if mine is None or its is None:
        silent = target if mine is None else draft
        return findings.warning(
            "draft-tokenizer",
            f"{silent.path.name} carries no vocabulary, so whether {draft.path.name} drafts in the target's tokens "
            "cannot be known: watch its acceptance rate.",
            expected="the same tokenizer in both files",
            observed=f"no tokens in {silent.path.name}",
            evidence=evidence,
        )
    return findings.error(
        "draft-tokenizer",
        f"{draft.path.name} was made for another tokenizer than that of {target.path.name}: the engine does not look, "
        "and nearly every draft would be rejected.",
        expected=f"fingerprint {mine}, {target.vocabulary_size} tokens",
        observed=f"fingerprint {its}, {draft.vocabulary_size} tokens",
        evidence=evidence,
        overridable=True,
        fixes=[_NGRAM, WITHOUT_SPECULATION],
    )


RULES = (draft_vocabulary, draft_tokenizer)
