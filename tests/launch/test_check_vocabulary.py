"""The check compares vocabularies where it reads files; a rule judges what it found."""

from pathlib import Path

import pytest
from fixtures.cases import profile
from fixtures.checks import launch_check
from fixtures.model_files import write

from app.findings import Severity

TOKENS = [f"t{n}" for n in range(400)]


@pytest.mark.parametrize(
    ("at", "method", "refused"), [(7, "draft", True), (4, "draft", False), (None, "draft", False), (7, "none", False)]
)
async def test_texts_of_token_ids(at: int | None, method: str, refused: bool, tmp_path: Path) -> None:
    other = [*TOKENS]
    if at is not None:
        other[at] = "another text"
    write(tmp_path / "dense.gguf", keys={"block_count": 1}, tokens=TOKENS)
    write(tmp_path / "draft.gguf", keys={"block_count": 1}, tokens=other)
    check = launch_check(tmp_path)
    speculation = {"method": method, **({"draft": {"path": "draft.gguf"}} if method == "draft" else {})}
    checked = await check.check(profile(speculation=speculation), 1, force=True)
    found = [finding for finding in checked.report.findings if finding.severity is Severity.ERROR]
    assert [finding.rule for finding in found] == ["draft-vocabulary"] * refused
    assert (checked.launch is None) is refused
    if refused:
        assert found[0].observed == f"token {at} differs"
