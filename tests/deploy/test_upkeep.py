"""What an operator runs into later: logs that grow, settings that are wrong, cards, what an image says of itself."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.dockerfile import ROOT, read_dockerfile
from deploy.test_start import SCRIPTS, environment

from app import __version__
from app.settings import Settings

UNIT = (ROOT / "deploy/systemd/paceline.service").read_text(encoding="utf-8")
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")


def compose() -> Any:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


def test_what_containers_print_does_not_fill_the_disk() -> None:
    for name, service in compose()["services"].items():
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}, name


def test_a_folder_without_a_slash_is_not_silently_a_volume() -> None:
    """Compose takes a bare word for a volume, and refuses one that the file does not have."""
    default = re.search(r"\$\{MODEL_FOLDER:-([a-z-]+)\}:/models:ro", str(compose()["services"]["paceline"]["volumes"]))
    assert default is not None
    assert default[1] in compose()["volumes"]
    assert not {"models", "model", "gguf"} & set(compose()["volumes"])


def test_an_image_says_what_it_is() -> None:
    dockerfile = read_dockerfile()
    labels = {
        target: dict(word.split("=", 1) for word in shlex.split(dockerfile.last(target, "LABEL").text))  # type: ignore[union-attr]
        for target in ("service", "demo")
    }
    start = "org.opencontainers.image"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert labels["service"][f"{start}.version"] == __version__
    assert f'license = "{labels["service"][f"{start}.licenses"]}"' in project
    # It holds Gemma's weights, too.
    assert "Gemma" in labels["demo"][f"{start}.licenses"]


def test_a_wrong_setting_ends_the_container_with_the_status_that_is_documented(tmp_path: Path) -> None:
    """The unit is not restarted for it; Docker does, and shows the status."""
    said = subprocess.run(
        [str(SCRIPTS / "start"), "serve"], cwd=tmp_path, env=environment(tmp_path) | {"PACELINE_PORT": "eighty"},
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert said.returncode == 2
    assert "PACELINE_PORT" in said.stderr
    assert "RestartPreventExitStatus=2\n" in UNIT
    assert "Restarting (2)" in DEPLOYMENT


def test_a_longer_drain_is_shown_with_the_time_that_it_takes() -> None:
    defaults = Settings(_env_file=None)
    example = next(text for text in re.findall(r"```yaml\n(.*?)```", DEPLOYMENT, re.DOTALL) if "DRAIN" in text)
    service = yaml.safe_load(example)["services"]["paceline"]
    drain = service["environment"]["PACELINE_DRAIN_SECONDS"]
    [timeout] = re.findall(r"\nTimeoutStopSec=(\d+)\n", DEPLOYMENT)
    needed = drain + defaults.terminate_seconds + defaults.kill_seconds
    assert drain > 60
    assert min(int(service["stop_grace_period"].removesuffix("s")), int(timeout)) > needed


def test_the_unit_sees_to_the_devices_of_nvidia_before_they_are_allowed() -> None:
    """A device that has no number when the unit starts is not allowed to it later."""
    modules = re.findall(r"modprobe@(\w+)\.service", re.search(r"^Wants=modprobe.*$", UNIT, re.MULTILINE)[0])  # type: ignore[index]
    assert modules == ["nvidia", "nvidia_uvm"]
    ordered = re.search(r"^After=modprobe.*$", UNIT, re.MULTILINE)[0]  # type: ignore[index]
    assert all(f"modprobe@{name}.service" in ordered for name in modules)
    [made, keyed] = re.findall(r"^ExecStartPre=(.*)$", UNIT, re.MULTILINE)
    # As root, and no matter where there is none.
    assert made.startswith("-+/bin/sh -c '")
    assert keyed.startswith("/opt/paceline/bin/paceline keys file ")
    assert re.search(r"^DeviceAllow=char-nvidia\* rwm$", UNIT, re.MULTILINE)
    assert re.search(r"^CapabilityBoundingSet=$", UNIT, re.MULTILINE)


@pytest.mark.parametrize("minors", [[], [0, 3]], ids=["none", "two"])
def test_the_files_of_every_card_are_made(tmp_path: Path, minors: list[int]) -> None:
    """The driver tells of its cards below /proc; nothing is asked where there are none."""
    for number, minor in enumerate(minors):
        told = tmp_path / "gpus" / f"0000:0{number}:00.0" / "information"
        told.parent.mkdir(parents=True)
        told.write_text(f"Model: \t\t A card\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")
    program = tmp_path / "nvidia-modprobe"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    [line] = re.findall(r"^ExecStartPre=-\+(/bin/sh -c .*nvidia-modprobe.*)$", UNIT, re.MULTILINE)
    # Percent signs would be systemd's own, and two dollar signs are one.
    assert "%" not in line
    words = shlex.split(line.replace("$$", "$").replace("/proc/driver/nvidia", str(tmp_path)))
    path = f"{tmp_path}:/usr/bin:/bin"
    said = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=True, timeout=30)
    assert said.stdout.splitlines() == [f"-u -c {minor}" for minor in minors]
    assert said.stderr == ""
