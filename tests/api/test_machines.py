"""The machines that come along are such as a check takes, and mean what their names say."""

import json
from pathlib import Path

import pytest

from app.api.machine_body import MachineBody
from app.inventory.devices import Machine

FOLDER = Path(__file__).parents[2] / "deploy" / "machines"
GIB = 1 << 30
# Gibibytes on the box of each device.
BOXES = {
    "1x24gb": [24], "2x24gb": [24, 24], "4x24gb": [24] * 4, "1x32gb": [32], "2x32gb": [32, 32], "1x48gb": [48],
    "1x80gb": [80], "8x80gb": [80] * 8, "24gb-and-12gb": [24, 12], "1x16gb": [16], "laptop-8gb": [8],
    "radeon-24gb": [24], "integrated-128gb": [128], "cpu-only": [],
}  # fmt: skip


def machine(name: str) -> Machine:
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return MachineBody.model_validate(document).value()


def test_every_machine_is_listed_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(BOXES)


@pytest.mark.parametrize("name", BOXES)
def test_a_machine_is_what_its_name_says(name: str) -> None:
    found = machine(name)
    assert len(set(found.device_names)) == len(found.devices) == len(BOXES[name])
    for device, gib in zip(found.devices, BOXES[name], strict=True):
        assert 0.9 * gib * GIB <= device.total_bytes <= 1.01 * gib * GIB
        assert 0.95 * device.total_bytes <= device.free_bytes <= device.total_bytes
    assert found.unified_names == (("CUDA0",) if name == "integrated-128gb" else ())
    host = found.host
    assert host.total_bytes is not None
    assert host.available_bytes is not None
    assert 0.75 * host.total_bytes <= host.available_bytes <= host.total_bytes
    assert host.physical_cores is not None
