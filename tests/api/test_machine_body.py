"""Machines in questions: what is taken, what is refused with the field named, and what is told from a description."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.tiny_models import TinyModels
from service import Service

from app.api.machine_body import MachineBody

GIB = 1 << 30


def device(name: str = "CUDA0", **more: Any) -> dict[str, Any]:
    return {"name": name, "total_bytes": 24 * GIB, "free_bytes": 23 * GIB, **more}


@pytest.mark.parametrize(
    ("machine", "field", "message"),
    [
        ({"devices": [device(), device()]}, "devices", "more than one device is named CUDA0"),
        ({"devices": [device(f"CUDA{n}") for n in range(65)]}, "devices", "at most 64 items"),
        ({"devices": [device(), device("host")]}, "devices.1.name", '"host" never names a device'),
        ({"devices": [device("None")]}, "devices.0.name", '"None" never names a device'),
        ({"devices": [device("CPU")]}, "devices.0.name", '"CPU" never names a device'),
        *(
            ({"devices": [device(name)]}, "devices.0.name", "should match pattern")
            for name in ("", " ", "a,b", "CUDA 0", "CUDA0\n", "CUDA0:", "0", "\uff23UDA0", "x" * 65)
        ),
        ({"devices": [device(free_bytes=25 * GIB)]}, "devices.0.free_bytes", f"total_bytes, which is {24 * GIB}"),
        ({"devices": [device(total_bytes=10**30)]}, "devices.0.total_bytes", "less than or equal"),
        ({"devices": [device(description="x\ny")]}, "devices.0.description", "control characters"),
        ({"devices": [{"total_bytes": 1}]}, "devices.0.name", "Field required"),
        ({"devices": [device(memory=1)]}, "devices.0.memory", "Extra inputs"),
        ({"host": {"total_bytes": 1, "available_bytes": 2}}, "host.available_bytes", "total_bytes, which is 1"),
        ({"host": {"physical_cores": 0}}, "host.physical_cores", "greater than or equal"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/check", "/suggest", "/profiles/p/check"])
def test_a_machine_that_cannot_be_is_refused_with_the_field(
    service: Service, path: str, machine: dict[str, Any], field: str, message: str
) -> None:
    asked = {
        "/check": {"profile": {"id": "p", "target": {"path": "x.gguf"}}},
        "/suggest": {"target": "x.gguf"},
        "/profiles/p/check": {},
    }[path]
    answer = service.client.post(path, json={**asked, "machine": machine})
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert problem["field"] == f"machine.{field}"
    assert message in problem["message"]


def test_every_device_of_a_machine_is_planned_for(service: Service, tiny: TinyModels) -> None:
    """Earns the check of names: by name, one of two twins would be lost."""
    machine = {"devices": [device("CUDA0"), device("CUDA1"), device("RPC0"), device("Vulkan0")]}
    question = {"profile": {"id": "p", "target": {"path": tiny.dense_target.name}}, "machine": machine}
    report = service.client.post("/check", json=question).json()
    assert [found["name"] for found in report["devices"]] == ["CUDA0", "CUDA1", "RPC0", "Vulkan0"]


def test_figures_that_are_not_known_are_taken() -> None:
    machine = MachineBody.model_validate(
        {"devices": [{"name": "Vulkan0", "free_bytes": GIB}, {"name": "MTL0"}]}
    ).value()
    assert [(found.total_bytes, found.free_bytes) for found in machine.devices] == [(0, GIB), (0, 0)]
    assert machine.host.available_bytes is None


@pytest.mark.parametrize(
    ("description", "said", "meant"),
    [
        ("Apple M4", None, True),
        ("NVIDIA GB10", None, True),
        ("Radeon 8060S", None, True),
        ("NVIDIA GeForce RTX 4090", None, False),
        ("", None, False),
        ("NVIDIA GB10", False, False),
        ("NVIDIA GeForce RTX 4090", True, True),
    ],
)
def test_who_does_not_say_integrated_means_what_the_description_says(
    description: str, said: bool | None, meant: bool
) -> None:
    body = device("Vulkan0", description=description, integrated=said)
    assert MachineBody.model_validate({"devices": [body]}).value().devices[0].integrated is meant
    if said is None:
        del body["integrated"]
        assert MachineBody.model_validate({"devices": [body]}).value().devices[0].integrated is meant


def test_the_machines_that_come_along_are_recognised_without_being_told() -> None:
    for path in (Path(__file__).parents[2] / "deploy" / "machines").glob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        told = MachineBody.model_validate(document).value()
        for each in document["devices"]:
            del each["integrated"]
        assert MachineBody.model_validate(document).value() == told
