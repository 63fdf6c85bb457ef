"""Asking an engine for its devices afresh."""

from pathlib import Path

import pytest

from app.errors import EngineUnusable
from app.inventory.devices import Device
from app.llama_server.engine import find_engine
from app.llama_server.probe import EngineProbe

SCRIPT = """#!/bin/sh
echo "Available devices:"
echo "  CUDA0: seen=$CUDA_VISIBLE_DEVICES order=$CUDA_DEVICE_ORDER asked=$* (24080 MiB, $(cat "$0.free") MiB free)"
"""


def engine(folder: Path, free_mib: str) -> Path:
    path = folder / "llama-server"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    (folder / "llama-server.free").write_text(free_mib)
    return path


async def test_each_listing_is_of_now_and_under_the_variables_of_a_profile(tmp_path: Path) -> None:
    path = engine(tmp_path, "100")
    probe = EngineProbe(lambda: find_engine(str(path)), ["127.0.0.1:50052"])
    (device,) = await probe.list_devices({"CUDA_VISIBLE_DEVICES": "1,0"}, with_rpc=True)
    asked = "asked=--rpc 127.0.0.1:50052 --list-devices"
    assert device == Device("CUDA0", f"seen=1,0 order=PCI_BUS_ID {asked}", 24080 << 20, 100 << 20)
    (tmp_path / "llama-server.free").write_text("50")
    (device,) = await probe.list_devices({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, with_rpc=False)
    assert device.description.endswith("order=FASTEST_FIRST asked=--list-devices")
    assert device.free_bytes == 50 << 20


async def test_an_engine_that_fails_to_list(tmp_path: Path) -> None:
    path = engine(tmp_path, "100")
    path.write_text("#!/bin/sh\necho 'CUDA error: unknown error' >&2\nexit 3\n")
    with pytest.raises(EngineUnusable, match="exited with 3: CUDA error: unknown error"):
        await EngineProbe(lambda: find_engine(str(path))).list_devices({}, with_rpc=True)
