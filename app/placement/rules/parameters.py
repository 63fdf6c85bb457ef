"""Rules on drafting limits, batch and slots."""

from app import findings
from app.findings import Finding, Fix
from app.placement.amounts import counted
from app.placement.attention_kinds import ROLLBACK
from app.placement.cache_types import QUANTISED_TYPES
from app.placement.case import LaunchCase
from app.placement.resolve import resolve
from app.speculative.parameters import Method, longest_draft

_SLOTS_MOST = 256
# With one token in a batch the engine dies while loading: its warm-up has two.
_BATCH_LEAST = 2
# The engine makes contexts in steps of so many tokens for each slot.
_CONTEXT_STEP = 256


def draft_tokens_zero(case: LaunchCase) -> Finding | None:
    """The engine accepts 0, becomes ready, and aborts at the first request."""
    speculation = case.profile.speculation
    if speculation.method is Method.NONE or speculation.method.is_ngram or speculation.draft_tokens_max > 0:
        return None
    return findings.error(
        "draft-tokens-zero",
        f"Method {speculation.method} with draft_tokens_max 0: the server would start, and abort at the first request.",
        expected="draft_tokens_max of at least 1",
        observed="0",
        evidence="llama.cpp checks the number of outputs only when it decodes",
        fixes=[
            Fix("Draft 3 tokens", {"speculation": {"draft_tokens_max": 3}}),
            Fix("Do without speculation", {"speculation": {"method": "none", "draft": None}}),
        ],
    )


def batch_too_small(case: LaunchCase) -> Finding | None:
    """Every slot may verify its longest draft in one batch; where that does not fit the engine aborts."""
    profile = case.profile
    longest, needed = _batch_needed(case)
    if needed <= profile.context.batch_size:
        return None
    return findings.error(
        "batch-too-small",
        f"{counted(profile.context.slots, 'slot')} with drafts of up to {counted(longest, 'token')} can need a batch "
        f"of {needed}; it is {profile.context.batch_size}. The server would start, and abort once enough slots "
        "speculate.",
        expected=f"batch_size of at least {needed} = slots x (1 + longest draft)",
        observed=str(profile.context.batch_size),
        evidence="context.slots, context.batch_size, limits of the methods",
        fixes=[Fix("The smallest batch that holds", {"context": {"batch_size": needed}})],
    )


def context_too_small(case: LaunchCase) -> Finding | None:
    """No batch is longer than the context that was asked for, before the engine rounds that up.

    With less than the drafts need it dies while loading, or at the first request.
    """
    context, (longest, needed) = case.profile.context, _batch_needed(case)
    ubatch_needed, _ = _ubatch_needed(case) or (0, "")
    size, needed = resolve(case).context_size, max(needed, ubatch_needed)
    if size >= needed or _is_size_unknown(case):
        return None
    enough = -(-needed // (_CONTEXT_STEP * context.slots)) * _CONTEXT_STEP * context.slots
    return findings.error(
        "context-too-small",
        f"A context of {counted(size, 'token')} also bounds the batch, and {counted(context.slots, 'slot')} with "
        f"drafts of up to {counted(longest, 'token')} can need {needed} in one: the server would die while loading, "
        "or at the first request.",
        expected=f"context.size of at least {needed}",
        observed=str(size),
        evidence="llama.cpp build 11434 takes no longer batch than the context it was given",
        fixes=[Fix(f"What the engine makes of it: {enough} tokens", {"context": {"size": enough}})],
    )


def cache_types_differ(case: LaunchCase) -> Finding | None:
    """Latent attention keeps keys and values in one cache, which has one type: the engine exits on two."""
    context, target = case.profile.context, case.target
    if target is None or context.k_type == context.v_type:
        return None
    is_latent = f"{target.architecture}.attention.key_length_mla" in target.header.metadata
    if not is_latent and target.architecture != "deepseek4":
        return None
    return findings.error(
        "cache-types-differ",
        f"{target.path.name} keeps keys and values in one cache, so k_type {context.k_type} and v_type "
        f"{context.v_type} cannot both be: the engine would exit while loading.",
        expected="k_type and v_type alike",
        observed=f"{context.k_type} and {context.v_type}",
        evidence="latent attention in the file's header",
        fixes=[Fix(f"Both {context.k_type}", {"context": {"v_type": context.k_type}})],
    )


def slots_too_many(case: LaunchCase) -> Finding | None:
    """The engine is compiled for at most 256 sequences and exits on more."""
    slots = case.profile.context.slots
    if slots <= _SLOTS_MOST:
        return None
    return findings.error(
        "slots-too-many",
        f"{slots} slots: the engine takes at most {_SLOTS_MOST} and would exit while loading.",
        expected=f"at most {_SLOTS_MOST} slots",
        observed=str(slots),
        evidence="llama.cpp build 11434",
        fixes=[Fix(f"{_SLOTS_MOST} slots", {"context": {"slots": _SLOTS_MOST}})],
    )


def ubatch_too_small(case: LaunchCase) -> Finding | None:
    """A block drafter reads all slots' blocks in one pass; states that are rolled back need room behind the draft.

    The engine is ready in the first case and aborts with the first full batch, and aborts while loading in the second.
    """
    context, asked = case.profile.context, _ubatch_needed(case)
    if asked is None:
        return None
    needed, why = asked
    found = min(context.ubatch_size, context.batch_size)
    if found >= needed:
        return None
    enlarged = {
        "ubatch_size": max(context.ubatch_size, needed),
        "batch_size": max(context.batch_size, needed),
    }
    return findings.error(
        "ubatch-too-small",
        f"{why}; ubatch_size {context.ubatch_size} and batch_size {context.batch_size} allow {found}. The server would "
        "abort.",
        expected=f"ubatch_size and batch_size of at least {needed}",
        observed=str(found),
        evidence="llama.cpp build 11434 asserts it",
        fixes=[Fix("The smallest that holds", {"context": enlarged})],
    )


def _ubatch_needed(case: LaunchCase) -> tuple[int, str] | None:
    """How many tokens one pass must take, and why; None where it may be as short as it likes."""
    speculation, slots = case.profile.speculation, case.profile.context.slots
    if speculation.method in (Method.DFLASH, Method.DSPARK):
        block = (case.draft.block_size if case.draft else None) or speculation.draft_tokens_max + 1
        needed = slots * (1 + min(speculation.draft_tokens_max, block - 1))
        return needed, f"The blocks of {counted(slots, 'slot')} are drafted in one pass of {needed} tokens"
    if speculation.method is Method.MTP and case.target is not None and case.target.architecture in ROLLBACK:
        needed = speculation.draft_tokens_max + 2
        return needed, f"{case.target.architecture} takes drafts back, for which a pass needs {needed} tokens"
    return None


def slots_divide_context(case: LaunchCase) -> Finding | None:
    """Without a unified cache each slot gets its share of the context, not all of it."""
    context = case.profile.context
    if context.slots == 1 or context.unified_kv or _is_size_unknown(case):
        return None
    resolved = resolve(case)
    return findings.warning(
        "slots-divide-context",
        f"{context.slots} slots divide {resolved.context_size} tokens: "
        f"each request has at most {resolved.context_per_slot}.",
        expected="a context per slot that your longest request fits in",
        observed=f"{resolved.context_size} / {context.slots} = {resolved.context_per_slot}",
        evidence="context.size, context.slots",
        fixes=[
            Fix(
                f"Give each slot {resolved.context_size} tokens",
                {"context": {"size": resolved.context_size * context.slots}},
            ),
            Fix("One slot", {"context": {"slots": 1, "size": context.size}}),
        ],
    )


def slots_share_context(case: LaunchCase) -> Finding | None:
    """With a unified cache every slot shows the whole context, and when the pool is full all running requests fail."""
    context = case.profile.context
    if context.slots == 1 or not context.unified_kv or _is_size_unknown(case):
        return None
    resolved = resolve(case)
    return findings.warning(
        "slots-share-context",
        f"{context.slots} slots share one pool of {resolved.context_size} tokens: when it is full, every running "
        "request fails with `Context size has been exceeded`.",
        expected="a pool for all requests that run together",
        observed=f"one pool of {resolved.context_size} for {context.slots} slots",
        evidence="context.size, context.slots, context.unified_kv",
        fixes=[
            Fix(
                f"Slots of their own with {resolved.context_size} tokens each",
                {"context": {"unified_kv": False, "size": resolved.context_size * context.slots}},
            ),
            Fix(
                f"A pool for {context.slots} full requests",
                {"context": {"size": resolved.context_size * context.slots}},
            ),
        ],
    )


def _is_size_unknown(case: LaunchCase) -> bool:
    """A size that the profile leaves open follows the target's header."""
    return case.profile.context.size is None and case.target is None


def quantised_v_needs_flash_attention(case: LaunchCase) -> Finding | None:
    """A quantised V cannot be read without it, in the target's cache or in the draft's: the engine exits."""
    speculation, context = case.profile.speculation, case.profile.context
    if context.flash_attention != "off":
        return None
    quantised = {"context.v_type": context.v_type} if context.v_type in QUANTISED_TYPES else {}
    draft = speculation.draft if speculation.method.takes_draft_model else None
    if draft is not None and draft.v_type in QUANTISED_TYPES:
        quantised["speculation.draft.v_type"] = draft.v_type
    if not quantised:
        return None
    listed = ", ".join(f"{field} {kind}" for field, kind in quantised.items())
    return findings.error(
        "quantised-v-needs-flash-attention",
        f"V is quantised ({listed}) and flash attention is off: the engine would exit while loading.",
        expected="flash_attention on, or V in f16",
        observed=f"{listed}, flash_attention off",
        evidence="llama.cpp: `quantized V cache requires flash_attn to be enabled`",
        fixes=[Fix("Turn flash attention on", {"context": {"flash_attention": "on"}})],
    )


def _batch_needed(case: LaunchCase) -> tuple[int, int]:
    """The longest draft of all methods, and the tokens of a batch in which every slot verifies one."""
    longest = max((_longest(case, method) for method in case.profile.speculation.methods), default=0)
    return longest, max(_BATCH_LEAST, case.profile.context.slots * (1 + longest))


def _longest(case: LaunchCase, method: Method) -> int:
    """As the engine sizes its batch: by the limit that was asked for, before a block drafter is clamped."""
    speculation = case.profile.speculation
    return longest_draft(method, speculation.draft_tokens_max, speculation.ngram.draft_length_max)


RULES = (
    draft_tokens_zero,
    batch_too_small,
    context_too_small,
    slots_too_many,
    cache_types_differ,
    ubatch_too_small,
    slots_divide_context,
    slots_share_context,
    quantised_v_needs_flash_attention,
)
