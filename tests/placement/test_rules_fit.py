"""Rules on `fit`."""

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import read_model
from app.placement.rules import fit


@pytest.mark.parametrize("method", ["draft", "mtp", "dspark", "ngram-mod"])
def test_fitting_changes_what_was_checked(method: str) -> None:
    judged = case(profile(speculation={"method": method}, placement={"fit": True}, context={"size": 1000}))
    found = found_by(fit.fit_with_draft, judged, "fit-with-draft", Severity.WARNING)
    after = patched(judged, found).profile
    assert (after.placement.fit, after.context.size) == (False, 1000)
    assert fit.fit_with_draft(case(profile(speculation={"method": method}))) is None
    assert fit.fit_with_draft(case(profile(placement={"fit": True}))) is None


@pytest.mark.parametrize(("draft", "unseen"), [("dspark", True), ("dspark_own_head", False)])
def test_a_draft_without_a_head_is_not_counted(draft: str, unseen: bool, tiny: TinyModels) -> None:
    wanted = profile(speculation={"method": "dspark", "draft": {"path": "d.gguf"}}, placement={"fit": True})
    found = fit.fit_with_draft(case(wanted, draft=read_model(getattr(tiny, draft))))
    assert found is not None
    assert ("not counted at all" in found.message) is unseen


def test_fitting_needs_a_context_size(tiny: TinyModels) -> None:
    judged = case(profile(placement={"fit": True}), target=read_model(tiny.dense_target))
    found = found_by(fit.fit_needs_context, judged, "fit-needs-context", Severity.ERROR)
    assert patched(judged, found).profile.context.size == 4096
    assert patched(judged, found, 1).profile.placement.fit is False
    assert fit.fit_needs_context(case(profile(placement={"fit": True}, context={"size": 2}))) is None
    assert fit.fit_needs_context(case(profile())) is None
