"""GET /devices: a machine that a check takes, live figures, and who holds what."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.cards import GIB, RTX_4090, card, driver, listed

from app.api.devices import router
from app.api.machine_body import MachineBody
from app.errors import EngineNotFound
from app.identifiers import id_text
from app.instances.evidence import DeviceSample
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.inventory.devices import Device, Host
from app.inventory.listing import DeviceListing
from app.inventory.machine import MachineReader
from app.inventory.nvml_snapshot import (
    CardProcess,
    Clocks,
    NvlinkPeer,
    NvmlSnapshot,
    PcieLink,
    PcieTraffic,
    Utilisation,
)

HOST = Host(64 * GIB, 40 * GIB, 8, 2)
OURS = InstanceRecord(
    id=7, profile_id="gemma", revision=1, state=InstanceState.READY, engine_build="b1", argv=(),
    created_at=datetime(2026, 1, 1, tzinfo=UTC), speculation={}, pid=4242,
)  # fmt: skip
CARD = card(
    1, free=9, processes=(CardProcess(11, None), CardProcess(4242, 14 * GIB)), utilisation=Utilisation(0.5, 0.25),
    power_watts=321.5, temperature_celsius=61, clocks=Clocks(2520, 2520, 10501),
    throttle_reasons=("software-power-cap",), pcie=PcieLink(4, 8, 4, 16), traffic=PcieTraffic(1000, 2000),
    nvlink_peers=(NvlinkPeer("0000:02:00.0", 4),),
)  # fmt: skip


def answer(
    devices: Sequence[Device] | EngineNotFound,
    nvml: NvmlSnapshot,
    *,
    records: Sequence[InstanceRecord] = (),
    reserved: Mapping[str, int] | None = None,
    samples: Mapping[str, Sequence[DeviceSample]] | None = None,
) -> dict[str, Any]:
    async def known_devices() -> Sequence[Device]:
        if isinstance(devices, EngineNotFound):
            raise devices
        return devices

    async def list_devices(_: Mapping[str, str], *, with_rpc: bool) -> Sequence[Device]:
        assert with_rpc
        return await known_devices()

    async def read_nvml(*, traffic: bool = False) -> NvmlSnapshot:
        return nvml

    reader = MachineReader(
        listing=DeviceListing(known_devices=known_devices, list_devices=list_devices, is_in_use=lambda: False),
        read_nvml=read_nvml, host=lambda: HOST, environment={},
        ours=lambda: {record.pid for record in records if record.pid},
    )  # fmt: skip
    app = FastAPI()
    app.include_router(router(reader, lambda: records, lambda: reserved or {}, lambda: samples or {}))
    with TestClient(app) as client:
        got = client.get("/devices", params={} if samples is None else {"history": True})
    assert got.status_code == 200
    document: dict[str, Any] = got.json()
    return document


def test_a_machine_with_its_live_figures_and_their_users() -> None:
    seen = answer([listed("CUDA0")], driver(CARD), records=[OURS], reserved={"CUDA0": 2 * GIB})
    assert seen == {
        "devices": [
            {
                "name": "CUDA0", "description": RTX_4090, "uuid": "GPU-1", "pci_bus_id": "0000:01:00.0",
                "integrated": False, "total_bytes": int(23.5 * GIB), "free_bytes": 9 * GIB,
            }
        ],
        "host": {"total_bytes": 64 * GIB, "available_bytes": 40 * GIB, "physical_cores": 8},
        "live": {
            "CUDA0": {
                "utilisation": {"busy_rate": 0.5, "memory_rate": 0.25}, "power_watts": 321.5, "power_limit_watts": None,
                "temperature_celsius": 61, "clocks": {"graphics_mhz": 2520, "sm_mhz": 2520, "memory_mhz": 10501},
                "throttle_reasons": ["software-power-cap"],
                "pcie": {"generation": 4, "width": 8, "generation_max": 4, "width_max": 16},
                "traffic": {"sent_bytes_rate": 1000, "received_bytes_rate": 2000},
                "nvlink_peers": [{"pci_bus_id": "0000:02:00.0", "links": 4}],
                "absent": {"power_limit_watts": "Not Supported"},
            }
        },
        "usage": {
            "CUDA0": {
                "reserved_bytes": 2 * GIB,
                "holders": [
                    {"pid": 11, "used_bytes": None, "instance_id": None, "profile_id": None},
                    {"pid": 4242, "used_bytes": 14 * GIB, "instance_id": id_text(7), "profile_id": "gemma"},
                ],
                "mismatch": None, "is_stale": False,
            }
        },
        "driver_version": "580.95.05",
        "numa_nodes": 2,
        "unlisted": [],
        "problems": [],
    }  # fmt: skip


def test_the_last_looks_are_told_on_request() -> None:
    now = time.monotonic()
    looks = [DeviceSample(now - 2, 0.25, GIB, 2 * GIB), DeviceSample(now - 1, None, None, None, 80.5, 60, ("idle",))]
    seen = answer([listed("CUDA0")], driver(CARD), samples={"CUDA0": looks})
    first, second = seen["history"]["CUDA0"]
    age = datetime.now(UTC) - datetime.fromisoformat(first.pop("at"))
    assert timedelta(seconds=2) <= age < timedelta(seconds=30)
    assert first == {
        "busy_rate": 0.25, "free_bytes": GIB, "total_bytes": 2 * GIB, "power_watts": None, "temperature_celsius": None,
        "throttle_reasons": [],
    }  # fmt: skip
    assert (second["busy_rate"], second["power_watts"], second["throttle_reasons"]) == (None, 80.5, ["idle"])
    assert seen["live"]["CUDA0"]["power_watts"] == 321.5


def test_devices_and_host_are_what_a_check_takes() -> None:
    seen = answer([listed("CUDA0"), listed("Vulkan0", "AMD Radeon RX 7900 XTX")], driver(CARD))
    machine = MachineBody.model_validate({"devices": seen["devices"], "host": seen["host"]}).value()
    assert machine.device_names == ("CUDA0", "Vulkan0")
    assert machine.devices[0].free_bytes == 9 * GIB
    assert machine.host == replace(HOST, numa_nodes=None)


def test_a_device_without_a_driver_to_ask_has_no_live_figures() -> None:
    seen = answer([listed("Vulkan0", "AMD Radeon RX 7900 XTX")], NvmlSnapshot(problem="no library"))
    assert seen["live"] == {}
    assert seen["usage"] == {"Vulkan0": {"reserved_bytes": 0, "holders": [], "mismatch": None, "is_stale": False}}
    assert seen["driver_version"] is None
    assert seen["problems"] == []


def test_a_card_that_is_not_what_the_order_says_is_told() -> None:
    seen = answer([listed("CUDA0", "NVIDIA GeForce RTX 3060", 11.6)], driver(CARD))
    assert "which it is not" in seen["usage"]["CUDA0"]["mismatch"]
    assert seen["devices"][0]["uuid"] is None


def test_without_an_engine_the_host_and_what_the_driver_shows() -> None:
    seen = answer(EngineNotFound("no engine: install one"), driver(CARD))
    assert seen["devices"] == []
    assert seen["host"]["total_bytes"] == 64 * GIB
    assert seen["unlisted"] == [RTX_4090]
    assert seen["problems"] == ["no engine: install one"]
