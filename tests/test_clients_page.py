"""The page on clients: what a machine can compare of it. Its commands are run in tests/end_to_end."""

import ast
import json
import re
from pathlib import Path

import anthropic
import openai
import pytest
import yaml
from fixtures.code_blocks import code_blocks

from app.cli.settings_text import settings_texts
from app.profiles.profile import LaunchProfile
from app.proxy.categories import Category

PAGE = "docs/clients.md"
TEXT = (Path(__file__).parents[1] / PAGE).read_text(encoding="utf-8")


def test_what_is_to_be_copied_into_files_can_be_read() -> None:
    for block in code_blocks(PAGE, "python"):
        ast.parse(block)
    assert all(yaml.safe_load(block) for block in code_blocks(PAGE, "yaml"))
    read = [json.loads(block) for block in code_blocks(PAGE, "json")]
    (opencode,) = [each for each in read if "provider" in each]
    assert opencode["model"].removeprefix("paceline/") in opencode["provider"]["paceline"]["models"]


@pytest.mark.parametrize("language", ["python", "sh", "json", "yaml"])
def test_the_url_has_its_path_where_openai_is_spoken_and_only_there(language: str) -> None:
    for block in code_blocks(PAGE, language):
        lines = block.splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            for path in re.findall(r"http://127\.0\.0\.1:8088([\w/]*)", line):
                if line.startswith("curl "):
                    assert path.startswith("/v1/")
                else:
                    assert path == ("" if "anthropic" in f"{before}{line}".lower() else "/v1")


def test_every_error_class_category_and_setting_exists() -> None:
    for name in re.findall(r"`(\w+Error)`", TEXT):
        assert hasattr(openai, name) or hasattr(anthropic, name), name
    assert set(re.findall(r"X-Paceline-Category[\"']?: [\"']?(\w+)", TEXT)) <= {kind.value for kind in Category}
    known = {setting.variable for setting in settings_texts()} | {"PACELINE_KEY"}
    assert set(re.findall(r"PACELINE_[A-Z_]+", TEXT)) <= known
    serving = set(LaunchProfile.model_fields["serving"].annotation.model_fields)  # type: ignore[union-attr]
    assert set(re.findall(r"`serving\.(\w+)`", TEXT)) <= serving
