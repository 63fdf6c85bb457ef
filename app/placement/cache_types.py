"""Types of the KV cache that hold blocks of values with a scale of their own."""

from collections.abc import Mapping
from typing import Any

from app.profiles.profile import LaunchProfile

QUANTISED_TYPES = frozenset({"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"})


def packed_cache(profile: LaunchProfile) -> Mapping[str, Any] | None:
    """The change that takes half the bytes of 16-bit caches, target's and draft's; a quantised V needs flash attention.

    None where they are quantised already.
    """
    context, speculation = profile.context, profile.speculation
    may = ["k_type"] if context.flash_attention == "off" else ["k_type", "v_type"]
    patch: dict[str, Any] = {}
    changed = {name: "q8_0" for name in may if getattr(context, name) not in QUANTISED_TYPES}
    if changed:
        patch["context"] = changed
    draft = speculation.draft if speculation.method.takes_draft_model else None
    drafts = {name: "q8_0" for name in may if draft and getattr(draft, name) not in QUANTISED_TYPES}
    if drafts:
        patch["speculation"] = {"draft": drafts}
    return patch or None
