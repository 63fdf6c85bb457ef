"""The rule on a quantised V; the other rules on parameters are in test_rules.py."""

from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched

from app.findings import Severity
from app.placement.rules.parameters import quantised_v_needs_flash_attention

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
