import os
from pathlib import Path

import pytest

from app.errors import SettingsInvalid
from app.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults_listen_on_loopback_and_keep_all_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    settings = load_settings()
    assert (settings.host, settings.port, settings.engine) == ("127.0.0.1", 8088, "auto")
    assert settings.data_dir == Path("/data/paceline")
    assert settings.database == "sqlite:////data/paceline/paceline.db"
    assert settings.model_folders == (Path("/data/paceline/models"),)
    assert settings.profiles_folder == Path("/data/paceline/profiles")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/a:/b c", ("/a", "/b c")),
        ('["/a", "/b:c"]', ("/a", "/b:c")),
        ("/only", ("/only",)),
        ("", None),
    ],
)
def test_model_folders(monkeypatch: pytest.MonkeyPatch, value: str, expected: tuple[str, ...] | None) -> None:
    monkeypatch.setenv("PACELINE_MODEL_DIRS", value)
    settings = load_settings()
    if expected is None:
        assert settings.model_folders == (settings.data_dir / "models",)
    else:
        assert settings.model_folders == tuple(map(Path, expected))


def test_rpc_devices_and_a_file_of_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_RPC", "127.0.0.1:1, 127.0.0.1:2")
    (tmp_path / ".env").write_text("PACELINE_PORT=9999\nOTHER=1\n", encoding="utf-8")
    settings = load_settings()
    assert settings.rpc == ("127.0.0.1:1", "127.0.0.1:2")
    assert settings.port == 9999


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "x"),
        ("PORT", "70000"),
        ("ENGINE_TRANSPORT", "carrier-pigeon"),
        ("MODEL_DIRS", "[1"),
        ("CORS_ORIGINS", "*"),
        ("CORS_ORIGINS", "https://good.example, chat.example"),
        ("CORS_ORIGINS", "https://*.example"),
        ("CORS_ORIGINS", "https://chat.example/app"),
        ("DRAIN_SECONDS", "-1"),
    ],
)
def test_what_is_wrong_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PACELINE_{name}", value)
    with pytest.raises(SettingsInvalid, match=f"PACELINE_{name}"):
        load_settings()


def test_origins_read_as_browsers_send_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CORS_ORIGINS", "https://Chat.Example:443/, http://localhost:3000,app://obsidian.md")
    assert load_settings().cors_origins == ("https://chat.example", "http://localhost:3000", "app://obsidian.md")


def test_settings_are_frozen_and_hide_the_key() -> None:
    settings = Settings(admin_key="secret")
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
    assert "secret" not in repr(settings)
    assert settings.read_admin_key() == "secret"


def test_the_runtime_folder_is_short_and_private(tmp_path: Path) -> None:
    made = Settings().make_runtime_dir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert len(str(made / ("0" * 16 + ".sock"))) <= 107
    made.rmdir()
    (tmp_path / "run").mkdir(mode=0o755)
    given = Settings(runtime_dir=tmp_path / "run").make_runtime_dir()
    assert given.parent == tmp_path / "run"
    assert given.stat().st_mode & 0o777 == 0o700
    # The folder that was given stays as it was: it may be shared.
    assert given.parent.stat().st_mode & 0o777 == 0o755


NUMBERS = [name for name, field in Settings.model_fields.items() if field.annotation in (int, float)]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_finite(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    variable = f"PACELINE_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsInvalid, match=variable):
        load_settings()
