"""The rules on a quantised V and on very short contexts; the other rules on parameters are in test_rules.py."""

from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import read_model
from app.placement.case import LaunchCase
from app.placement.rules.parameters import context_too_small, quantised_v_needs_flash_attention

RULE = "quantised-v-needs-flash-attention"


@pytest.mark.parametrize("v_type", ["q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
def test_a_quantised_v_needs_flash_attention(v_type: str) -> None:
    judged = case(profile(context={"v_type": v_type, "flash_attention": "off"}))
    found = found_by(quantised_v_needs_flash_attention, judged, RULE, Severity.ERROR)
    assert patched(judged, found).profile.context.flash_attention == "on"
    for setting in ("on", "auto"):
        context = {"v_type": v_type, "flash_attention": setting}
        assert quantised_v_needs_flash_attention(case(profile(context=context))) is None


@pytest.mark.parametrize("context", [{"v_type": "f16"}, {"v_type": "bf16"}, {"v_type": "f32"}, {"k_type": "q8_0"}])
def test_other_caches_do_without(context: dict[str, Any]) -> None:
    judged = case(profile(context={**context, "flash_attention": "off"}))
    assert quantised_v_needs_flash_attention(judged) is None


@pytest.mark.parametrize(("method", "refused"), [("draft", True), ("none", False)])
def test_the_drafts_cache_is_read_the_same_way(method: str, refused: bool) -> None:
    speculation = {"method": method, "draft": {"path": "d.gguf", "v_type": "q8_0"}}
    judged = case(profile(speculation=speculation, context={"flash_attention": "off"}))
    if refused:
        found_by(quantised_v_needs_flash_attention, judged, RULE, Severity.ERROR)
    else:
        assert quantised_v_needs_flash_attention(judged) is None


DRAFT = {"method": "draft", "draft": {"path": "d.gguf"}, "draft_tokens_max": 3}
BLOCK = {"method": "dflash", "draft": {"path": "d.gguf"}, "draft_tokens_max": 7}


@pytest.mark.parametrize(
    ("speculation", "slots", "needed"),
    [({}, 1, 2), ({}, 4, 4), (DRAFT, 1, 4), (DRAFT, 2, 8), (BLOCK, 2, 16), ({"method": "ngram-mod"}, 1, 65)],
)
def test_a_context_holds_the_longest_batch(speculation: dict[str, Any], slots: int, needed: int) -> None:
    def judged(size: int | None) -> LaunchCase:
        return case(profile(speculation=speculation, context={"size": size, "slots": slots}))

    short = judged(needed - 1)
    found = found_by(context_too_small, short, "context-too-small", Severity.ERROR)
    size = patched(short, found).profile.context.size
    assert size is not None
    assert (size % (256 * slots), size >= needed) == (0, True)
    assert context_too_small(judged(needed)) is None
    assert context_too_small(judged(None)) is None


def test_a_state_that_is_taken_back_wants_two_tokens_more(tiny: TinyModels) -> None:
    """Measured: with drafts of 3 the engine aborts while loading in a context of 4 tokens, and serves in one of 5."""
    for size, holds in ((4, False), (5, True)):
        wanted = profile(speculation={"method": "mtp", "draft_tokens_max": 3}, context={"size": size})
        assert (context_too_small(case(wanted, target=read_model(tiny.mtp_target))) is None) is holds
