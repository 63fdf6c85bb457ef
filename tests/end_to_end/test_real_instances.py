"""What an instance tells of itself, and what is made of it, on engines that really load."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
from fixtures.faulty_engine import ended, reached
from fixtures.shapes import SHAPES, Shape
from fixtures.sparse_models import write_model
from fixtures.tiny_models import TinyModels
from fixtures.told_events import told_until
from service import Service, eventually, running_service, settings_for, short_folder

from app.llama_server.load_facts import PRINTED_BYTES
from app.llama_server.load_stages import STAGES
from app.placement.calibration import ESTIMATED_TERMS
from app.profiles.profile import merge_patch

REAL = "llama-server"
ENGINES = [pytest.param(REAL, marks=pytest.mark.engine), "embedded"]
# Two models in one place, each with two printed figures; and buffers are padded.
EXACT_BYTES = 4 * (PRINTED_BYTES + 1) + 8192
# The planner is this close to compute buffers, or above them.
ESTIMATE_BYTES = 4 << 20
BY_ID = {shape.id: shape for shape in SHAPES}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What the settings call the engine."""
    return str(request.getfixturevalue("engine_path")) if request.param == REAL else str(request.param)


@pytest.fixture(scope="module")
def served(engine: str, tiny: TinyModels) -> Iterator[Service]:
    with (
        short_folder() as folder,
        running_service(settings_for(folder, tiny.dense_target.parent, engine=engine)) as service,
    ):
        yield service


def measured(service: Service, instance: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Bytes by place and term, once the engine's last lines are read."""
    return eventually(lambda: service.instance(instance["id"])["memory"]["measured"] or None)


def check(service: Service, profile: str) -> dict[str, Any]:
    answer = service.client.post(f"/profiles/{profile}/check")
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def diagnosis(service: Service, instance: Mapping[str, Any]) -> list[str]:
    found = service.client.get(f"/instances/{instance['id']}/diagnosis").json()["items"]
    return [finding["rule"] for finding in found]


def tensor_bytes(path: Path) -> int:
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.id)
def test_every_shape_takes_what_its_plan_says(served: Service, tiny: TinyModels, shape: Shape) -> None:
    service, profile = served, served.add(shape.document(tiny))
    instance = service.start(profile)
    told, predicted = measured(service, instance), instance["memory"]["predicted"]

    for place, terms in told.items():
        for term, n_bytes in terms.items():
            allowed = ESTIMATE_BYTES if term in ESTIMATED_TERMS else EXACT_BYTES
            assert n_bytes == pytest.approx(predicted[place][term], abs=allowed), (place, term)
            series = {"profile": profile, "device": place, "term": term, "source": "measured"}
            assert service.metric("paceline_instance_memory_bytes", **series) == n_bytes
    exact = {term for term, n_bytes in predicted["host"].items() if n_bytes > EXACT_BYTES} - {"overhead", "host_caches"}
    assert exact <= told["host"].keys()
    for term, name in (("weights", shape.target), ("draft_weights", shape.draft)):
        if name is not None:
            assert told["host"][term] == pytest.approx(tensor_bytes(getattr(tiny, name)), abs=EXACT_BYTES)

    assert instance["degradations"] == diagnosis(service, instance) == []
    progress = told_until(
        service,
        "instance.load_progress",
        lambda event: event["id"] == instance["id"] and event["load_progress"]["stage"] == "loaded",
    )
    last = progress[-1]["load_progress"]
    assert last["fraction"] == 1.0
    assert service.instance(instance["id"])["load_progress"]["stage"] == "loaded"
    service.stop(profile)


@pytest.mark.slow
def test_a_load_is_told_stage_by_stage(engine: str) -> None:
    """Earns the progress of a load, with half a gigabyte that is read: tiny models are there before anybody looks."""
    with short_folder() as folder:
        write_model("qwen3_06b_draft", folder)
        with running_service(settings_for(folder, folder, engine=engine)) as service:
            context = {"threads": 1, "size": 512, "prompt_cache_bytes": 0}
            read = {
                "target": {"path": "qwen3_06b_draft.gguf"},
                "context": context,
                "extra_args": ["--load-mode", "none"],
            }
            instance = service.start(service.add({"id": "large", **read}))
            events = told_until(
                service, "instance.load_progress", lambda each: each["load_progress"]["fraction"] == 1.0
            )
            told = [event["load_progress"] for event in events if event["id"] == instance["id"]]
    stages = [STAGES.index(each["stage"]) for each in told]
    assert stages == sorted(stages)
    assert told[0]["fraction"] is None
    fractions = [each["fraction"] for each in told[1:]]
    assert fractions == sorted(fractions)
    assert len({fraction for fraction in fractions if 0 < fraction < 1}) > 1
    seconds = [each["seconds"] for each in told]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(("shape_id", "is_settled"), [("draft", True), ("mtp", True), ("dspark", False)])
def test_a_later_check_of_the_same_revision_knows_what_was_measured(
    served: Service, tiny: TinyModels, shape_id: str, is_settled: bool
) -> None:
    service, document = served, {**BY_ID[shape_id].document(tiny), "id": f"again-{shape_id}"}
    profile = service.add(document)
    before = check(service, profile)
    told = measured(service, service.start(profile))["host"]
    service.stop(profile)

    def calibrated() -> dict[str, Any] | None:
        report = check(service, profile)
        return report if report["host"]["terms"] != before["host"]["terms"] else None

    # It is written a moment later.
    after = eventually(calibrated)
    assert after["verdict"] == before["verdict"]
    assert [each["rule"] for each in after["findings"]] == [each["rule"] for each in before["findings"]]
    planned, corrected = before["host"]["terms"], after["host"]["terms"]
    known = {"compute", "draft_compute"} if is_settled else {"draft_compute"}
    for term in planned.keys() - known:
        assert corrected[term] == planned[term], term
    for term in known:
        assert told[term] <= corrected[term] <= told[term] + PRINTED_BYTES + 1

    for patch in ({"context": {"size": 4096}}, {"speculation": {"method": "none", "draft": None}}):
        answer = service.client.post(f"/profiles/{profile}/check", json={"patch": patch})
        unknown = service.client.post("/check", json={"profile": merge_patch(document, patch)})
        assert answer.json()["host"]["terms"] == unknown.json()["host"]["terms"], (
            "what is asked about was never measured"
        )
    service.client.patch(f"/profiles/{profile}", json={"description": "another revision"})
    assert check(service, profile)["host"]["terms"] == planned


@pytest.fixture
def without_drafter(engine_path: Path, tmp_path: Path) -> Path:
    """The real engine, whose DSpark drafters do not come up: they have no confidence head. It says nothing of it."""
    return _script(tmp_path, f'exec "{engine_path}" "$@" --spec-draft-p-min 0.5')


def _script(folder: Path, line: str) -> Path:
    program = folder / "llama-server"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    return program


def silent(service: Service, tiny: TinyModels, on_degraded: str, **speculation: Any) -> str:
    drafter = {"method": "dspark", "draft": {"path": tiny.dspark.name}, **speculation}
    return service.add(
        {
            "id": f"silent-{on_degraded}",
            "target": {"path": tiny.dense_target.name},
            "speculation": drafter,
            "context": {"threads": 1},
            "serving": {"on_degraded": on_degraded},
        }
    )


@pytest.mark.engine
def test_a_drafter_that_does_not_come_up(tiny: TinyModels, without_drafter: Path) -> None:
    with (
        short_folder() as folder,
        running_service(settings_for(folder, tiny.dense_target.parent, engine=str(without_drafter))) as service,
    ):
        kept = service.start(silent(service, tiny, "keep"))
        assert kept["degradations"] == diagnosis(service, kept) == ["speculation-inactive"]
        assert (
            service.metric("paceline_instance_degraded", profile="silent-keep", degradation="speculation-inactive") == 1
        )
        assert not any(term.startswith("draft") for term in measured(service, kept)["host"])
        assert service.complete("silent-keep").status_code == 200

        stopped = silent(service, tiny, "stop")
        answer = service.client.post(f"/profiles/{stopped}/start", params={"wait": True})
        assert (answer.status_code, answer.json()["reason"]) == (502, "speculation-inactive")
        assert service.newest(stopped)["state"] == "failed"

        replaced = silent(service, tiny, "baseline")
        first = service.client.post(f"/profiles/{replaced}/start", params={"wait": True}).json()
        assert ended(service, first["id"])["reason"] == "fallback"
        reached(service, replaced, "ready")
        second = service.newest(replaced)
        assert second["degradations"] == ["speculation-given-up"]
        assert second["argv"][second["argv"].index("--spec-type") + 1] == "none"
        assert service.complete(replaced).status_code == 200


@pytest.mark.engine
def test_what_only_its_last_lines_tell_stops_it_too(
    tiny: TinyModels, engine_path: Path, rpc_devices: tuple[str, str], tmp_path: Path
) -> None:
    """An engine with fewer layers on its device than planned, healthy before a line of its output is read."""
    go_on, output = tmp_path / "go-on", tmp_path / "output"
    os.mkfifo(go_on)
    os.mkfifo(output)
    held = f'{{ read -r _ < "{go_on}"; cat; }} < "{output}" >&2 & exec 2> "{output}"'
    line = f'exec "{engine_path}" "$@" --gpu-layers 4'
    engine = _script(tmp_path, f'case "$*" in *--log-jsonl*) ;; *--host*) {held} ;; esac\n{line}')
    with (
        short_folder() as folder,
        running_service(settings_for(folder, tiny.dense_target.parent, engine=str(engine), rpc=rpc_devices)) as service,
    ):
        placed = {"target": {"path": tiny.dense_target.name}, "placement": {"devices": ["RPC0"]}}
        profile = service.add({"id": "held", **placed, "serving": {"on_degraded": "stop"}})
        instance = service.start(profile)
        assert instance["degradations"] == []
        go_on.write_text("\n")
        failed = ended(service, instance["id"])
        assert (failed["state"], failed["reason"]) == ("failed", "layers-on-host")
        assert failed["degradations"] == ["layers-on-host"]


def test_drafts_that_are_thrown_away_are_given_up(served: Service, tiny: TinyModels) -> None:
    document = {**BY_ID["dflash"].document(tiny), "id": "collapses", "serving": {"on_degraded": "baseline"}}
    service, profile = served, served.add(document)
    first = service.start(profile)
    for number in range(4):
        assert service.complete(profile, f"{number} hello abc").status_code == 200
    assert diagnosis(service, first) == ["acceptance-collapsed"]
    assert ended(service, first["id"])["reason"] == "fallback"
    answer = service.complete(profile)
    assert answer.status_code == 200
    assert service.row(answer)["draft_tokens"] is None
    assert service.newest(profile)["degradations"] == ["speculation-given-up"]
    service.stop(profile)
