import json
from pathlib import Path
from typing import Any

import pytest
from cli.paceline_command import paceline
from cli.small_service import SmallService
from fixtures.lives import INSTANCE_ID, life

from app.cli.exit_codes import Exit
from app.identifiers import id_text


def finding(severity: str) -> dict[str, Any]:
    return {
        "rule": "draft-on-host", "severity": severity, "message": "It drafts on the host.", "expected": "CUDA0",
        "observed": "host", "evidence": "its log", "overridable": False,
        "fixes": [{"description": "Move it", "patch": {"speculation": {"draft": {"device": "CUDA0"}}},
                   "effect_bytes": 0}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "severity", "code", "said"),
    [
        ("gemma", "error", Exit.REFUSED, "1 finding"),
        (id_text(INSTANCE_ID), "warning", Exit.REFUSED, "1 finding"),
        ("gemma", "info", Exit.DONE, "nothing is wrong"),
        (id_text(INSTANCE_ID), None, Exit.DONE, "nothing is wrong"),
    ],
)
def test_findings_are_printed_with_their_fixes(
    tmp_path: Path, subject: str, severity: str | None, code: Exit, said: str
) -> None:
    found = [finding(severity)] if severity else []
    with SmallService(lives={"gemma": life()}, findings=found).running() as server:
        asked = paceline("diagnose", subject, cwd=tmp_path, settings={"PACELINE_URL": server.base_url})
        assert asked.code == code
        assert asked.out.splitlines()[0] == f"gemma is ready (instance {id_text(INSTANCE_ID)}): {said}"
        if severity:
            assert "expected: CUDA0; observed: host (known from its log)" in asked.out
            assert 'fix: Move it: {"speculation": {"draft": {"device": "CUDA0"}}}' in asked.out


def test_it_can_be_read_by_programs(tmp_path: Path) -> None:
    with SmallService(lives={"gemma": life()}, findings=[finding("warning")]).running() as server:
        asked = paceline("diagnose", "gemma", "--json", cwd=tmp_path, settings={"PACELINE_URL": server.base_url})
    assert asked.code == Exit.REFUSED
    assert json.loads(asked.out) == {"items": [finding("warning")], "next_cursor": None}


def test_what_cannot_be_diagnosed_is_an_error_of_its_own(tmp_path: Path) -> None:
    with SmallService(profiles=["gemma", "0123456789abcdef"]).running() as server:
        settings = {"PACELINE_URL": server.base_url}
        for subject, said in (
            ("gemma", "gemma has not been started yet: `paceline start gemma`"),
            # An id of an instance in its form, and a profile all the same.
            ("0123456789abcdef", "0123456789abcdef has not been started yet"),
            ("nobody", 'there is no profile "nobody"'),
        ):
            asked = paceline("diagnose", subject, cwd=tmp_path, settings=settings)
            assert asked.code == Exit.USAGE
            assert said in asked.err
    nowhere = paceline("diagnose", "gemma", cwd=tmp_path, settings={"PACELINE_URL": "http://127.0.0.1:9"})
    assert nowhere.code == Exit.USAGE
