"""Prometheus beside a service, without containers, as docs/deployment.md has it."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.paceline_command import clean_environment
from deploy.dockerfile import ROOT
from deploy.prometheus_server import prometheus_of
from fixtures.programs import needed_program
from fixtures.tiny_models import TinyModels
from pydantic import SecretStr
from service import eventually, running_service, settings_for, short_folder

KEY = "pl_the-key-of-the-administrator"
SECTION = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").split("\n## Prometheus without containers\n")[1]
# Of a service without keys, and of one that asks for them.
WITHOUT_KEYS, WITH_KEYS = (
    block.split("```")[0].replace("|\n ", "|") for block in SECTION.split("\n## ")[0].split("```sh\n")[1:]
)


def configuration(commands: str) -> str:
    """What the documented sed makes of the file of the containers."""
    [line] = [line for line in commands.splitlines() if line.startswith("sed ")]
    made = subprocess.run(
        ["/bin/sh", "-c", line.partition(" | ")[0]], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return made.stdout


def make_key(folder: Path, url: str) -> "subprocess.CompletedProcess[str]":
    """The documented line that puts a key into a file, in this folder and as this user."""
    [line] = [line for line in WITH_KEYS.splitlines() if "/bin/paceline " in line]
    for there, here in (
        ("/opt/paceline/bin/paceline", f"{shlex.quote(sys.executable)} -m app.cli"),
        ("sudo install -o prometheus", "install"),
        ("/etc/prometheus/", f"{folder}/"),
    ):
        assert there in line
        line = line.replace(there, here)
    environment = clean_environment(PACELINE_URL=url, PACELINE_ADMIN_KEY=KEY)
    return subprocess.run(
        ["/bin/sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
@pytest.mark.parametrize("has_keys", [False, True], ids=["without-keys", "with-keys"])
def test_it_scrapes_a_service(tiny: TinyModels, has_keys: bool) -> None:
    """Earns that the documented configurations and key work: with a real Prometheus, and its rules."""
    promtool = needed_program("promtool", "prometheus")
    chosen: dict[str, Any] = {"admin_key": SecretStr(KEY)} if has_keys else {}
    with short_folder() as folder, running_service(settings_for(folder, tiny.dense_target.parent, **chosen)) as service:
        places = [
            ("127.0.0.1:8088", service.base_url.removeprefix("http://")),
            ("scrape_interval: 15s", "scrape_interval: 1s"),
        ]
        if has_keys:
            places.append(("/etc/prometheus/", f"{folder}/"))
            made = make_key(folder, service.base_url)
            assert made.returncode == 0, made.stderr
            assert (folder / "paceline.key").stat().st_mode & 0o777 == 0o400
        (folder / "rules").symlink_to(ROOT / "deploy" / "prometheus" / "rules")
        text = configuration(WITH_KEYS if has_keys else WITHOUT_KEYS)
        for place, here in places:
            assert place in text
            text = text.replace(place, here)
        (folder / "prometheus.yml").write_text(text)
        checked = subprocess.run(
            [promtool, "check", "config", str(folder / "prometheus.yml")],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stderr
        with prometheus_of(folder / "prometheus.yml", folder) as prometheus:
            assert eventually(lambda: prometheus.value('up{job="paceline"}')) == 1
            assert {rule["name"] for rule in prometheus.rules()} > {"PacelineScrapeMissing"}


def test_a_key_that_was_not_made_leaves_no_file(tiny: TinyModels, tmp_path: Path) -> None:
    with running_service(settings_for(tmp_path, tiny.dense_target.parent)) as service:
        made = make_key(tmp_path, service.base_url)
    assert made.returncode != 0
    assert "make an admin key first" in made.stderr
    assert not (tmp_path / "paceline.key").exists()


def test_the_places_of_the_containers_are_gone() -> None:
    with_keys, without = configuration(WITH_KEYS), configuration(WITHOUT_KEYS)
    assert "credentials_file: /etc/prometheus/paceline.key" in with_keys
    assert "/keys/" not in without
    assert "authorization:" not in without
    for text in (with_keys, without):
        assert 'targets: ["127.0.0.1:8088"]' in text
