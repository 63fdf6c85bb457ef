"""Prometheus beside a service, without containers, as docs/deployment.md has it."""

import subprocess

import pytest
from cli.paceline_command import paceline
from deploy.dockerfile import ROOT
from deploy.prometheus_server import prometheus_of
from fixtures.programs import needed_program
from fixtures.tiny_models import TinyModels
from pydantic import SecretStr
from service import eventually, running_service, settings_for, short_folder

KEY = "pl_the-key-of-the-administrator"
SECTION = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").split("\n## Prometheus without containers\n")[1]


def commands() -> str:
    """Those of the section, in one line each."""
    return SECTION.split("```sh\n")[1].split("```")[0].replace("|\n ", "|")


def configuration() -> str:
    """What the documented sed makes of the file of the containers."""
    [line] = [line for line in commands().splitlines() if line.startswith("sed ")]
    made = subprocess.run(
        ["/bin/sh", "-c", line.partition(" | ")[0]], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return made.stdout


@pytest.mark.slow
def test_it_scrapes_a_service_that_asks_for_a_key_with_one_of_its_own(tiny: TinyModels) -> None:
    """Earns that the documented configuration and key work: with a real Prometheus, and its rules."""
    promtool = needed_program("promtool", "prometheus")
    with short_folder() as folder:
        settings = settings_for(folder, tiny.dense_target.parent, admin_key=SecretStr(KEY))
        with running_service(settings) as service:
            [make] = [line for line in commands().splitlines() if "/bin/paceline " in line]
            words = make.partition(" | ")[0].split()[1:]
            made = paceline(*words, cwd=folder, settings={"PACELINE_URL": service.base_url, "PACELINE_ADMIN_KEY": KEY})
            assert made.code == 0, made.err
            (folder / "paceline.key").write_text(made.out)
            (folder / "rules").symlink_to(ROOT / "deploy" / "prometheus" / "rules")
            address = service.base_url.removeprefix("http://")
            text = configuration()
            for place, here in (
                ("/etc/prometheus/", f"{folder}/"),
                ("127.0.0.1:8088", address),
                ("scrape_interval: 15s", "scrape_interval: 1s"),
            ):
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


def test_the_places_of_the_containers_are_gone() -> None:
    text = configuration()
    assert "credentials_file: /etc/prometheus/paceline.key" in text
    assert 'targets: ["127.0.0.1:8088"]' in text
