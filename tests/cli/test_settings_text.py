from pathlib import Path

from cli.paceline_command import paceline

from app.cli.settings_text import settings_texts
from app.settings import Settings


def test_every_setting_says_what_it_is() -> None:
    texts = settings_texts()
    assert [text.variable for text in texts] == [f"PACELINE_{name.upper()}" for name in Settings.model_fields]
    assert all(text.description for text in texts)


def test_the_help_of_serve_shows_every_setting_with_description_and_default(tmp_path: Path) -> None:
    shown = paceline("serve", "--help", cwd=tmp_path)
    assert shown.code == 0
    lines = [line.strip() for line in shown.out.splitlines()]
    for setting in settings_texts():
        head = f"{setting.variable} [{setting.default}]" if setting.default else setting.variable
        assert head in lines
        assert setting.description in lines


def test_defaults_read_as_they_are_written() -> None:
    defaults = {text.variable: text.default for text in settings_texts()}
    assert defaults["PACELINE_PORT"] == "8088"
    assert defaults["PACELINE_ALLOW_UNAUTHENTICATED"] == "false"
    assert defaults["PACELINE_DRAIN_SECONDS"] == "30"
    assert defaults["PACELINE_ADMIN_KEY"] == ""
