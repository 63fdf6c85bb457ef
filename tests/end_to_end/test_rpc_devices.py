"""Devices of the real engine behind RPC servers, which serve one client at a time."""

from pathlib import Path

import pytest
from fixtures.tiny_models import TinyModels
from service import running_service, settings_for, short_folder


@pytest.mark.engine
def test_devices_that_an_engine_of_ours_holds_are_not_asked(
    engine_path: Path, rpc_devices: tuple[str, str], tiny: TinyModels
) -> None:
    profile = {"id": "held", "target": {"path": "dense.gguf"}, "placement": {"devices": ["RPC0"]}}
    other = {**profile, "id": "other", "placement": {"devices": ["RPC1"]}}
    with (
        short_folder() as folder,
        running_service(
            settings_for(folder, tiny.dense_target.parent, engine=str(engine_path), rpc=rpc_devices)
        ) as service,
    ):

        def stale() -> list[bool]:
            usage = service.client.get("/devices").json()["usage"]
            return [usage[name]["is_stale"] for name in ("RPC0", "RPC1")]

        def rules() -> set[str]:
            report = service.client.post("/check", json={"profile": other}).json()
            return {finding["rule"] for finding in report["findings"]}

        assert stale() == [False, False]
        assert "device-stale" not in rules()
        service.add(profile)
        service.start("held")
        # To ask would last until the engine ends.
        assert stale() == [True, True]
        assert "device-stale" in rules()
        service.stop("held")
        assert stale() == [False, False]
