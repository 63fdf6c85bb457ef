"""`paceline suggest TARGET [DRAFT]`."""

import json
from pathlib import Path

from cli.paceline_command import paceline
from fixtures.tiny_models import TinyModels
from service import Service

from app.cli.exit_codes import Exit
from app.cli.suggest import document
from app.profiles.profile import document_of, parse_profile
from app.profiles.yaml_documents import read_documents


def test_each_suggestion_is_a_profile_to_keep(service: Service, tiny: TinyModels, tmp_path: Path) -> None:
    files = (tiny.dense_target.name, tiny.draft.name)
    asked = paceline("suggest", *files, "--url", service.base_url, cwd=tmp_path)
    told = json.loads(paceline("suggest", *files, "--url", service.base_url, "--json", cwd=tmp_path).out)
    assert (asked.code, asked.err) == (Exit.DONE, "")
    for number, item in enumerate(told["items"], start=1):
        assert f"{number}. {item['reason']}" in asked.out
        assert document(item["profile"]) in asked.out
    assert len(told["items"]) > 1


def test_what_is_left_out_is_said(service: Service, tiny: TinyModels, tmp_path: Path) -> None:
    files = (tiny.dense_target.name, tiny.dense_target.name)
    asked = paceline("suggest", *files, "--url", service.base_url, cwd=tmp_path)
    assert asked.code == Exit.DONE
    assert asked.out.startswith("1. ")
    assert "warning draft-is-target" in asked.out
    assert "slower than no draft" in " ".join(asked.out.split())


def test_nothing_has_a_reason_and_is_a_refusal(service: Service, tiny: TinyModels, tmp_path: Path) -> None:
    asked = paceline("suggest", tiny.dspark.name, "--url", service.base_url, cwd=tmp_path)
    assert asked.code == Exit.REFUSED
    assert asked.out.startswith("nothing is suggested\n")
    assert "error   target-is-a-drafter" in asked.out
    told = paceline("suggest", tiny.dspark.name, "--url", service.base_url, "--json", cwd=tmp_path)
    assert told.code == Exit.REFUSED
    assert [found["rule"] for found in json.loads(told.out)["findings"]] == ["target-is-a-drafter"]


def test_a_document_says_what_is_no_default_and_no_more() -> None:
    profile = parse_profile({"id": "a", "target": {"path": "a.gguf"}, "context": {"size": 4096, "k_type": "q8_0"}})
    text = document(document_of(profile))
    assert "serving" not in text
    (read,) = read_documents(text)
    assert parse_profile(read.data) == profile


def test_a_file_that_is_not_there(service: Service, tmp_path: Path) -> None:
    asked = paceline("suggest", "absent.gguf", "--url", service.base_url, cwd=tmp_path)
    assert asked.code == Exit.REFUSED
    assert "absent.gguf" in asked.err


def test_the_usage_marks_the_draft_as_optional_once(tmp_path: Path) -> None:
    usage = paceline("suggest", "--help", cwd=tmp_path).out
    assert " [DRAFT]" in usage
    assert "[[" not in usage
