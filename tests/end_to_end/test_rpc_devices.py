"""Devices of the real engine behind RPC servers, which serve one client at a time."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fixtures.rpc_servers import rpc_server
from fixtures.tiny_models import TinyModels, write_dense
from fixtures.told_events import told_until
from service import InFlight, Service, completion, running_service, settings_for, short_folder

CONTEXT = 32768


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


def wanted(service: Service, profile: str) -> tuple[dict[str, Any], set[str]]:
    """What a check says of others, and its rules."""
    report = service.client.post(f"/profiles/{profile}/check").json()
    return report["residency"], {finding["rule"] for finding in report["findings"]}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("also_memory", [False, True], ids=["client", "memory"])
def test_two_profiles_on_rpc_devices_take_turns(engine_path: Path, tmp_path: Path, also_memory: bool) -> None:
    """Earns that both serve by requests alone, where a server has one client, and with a wide margin no room either."""
    with ExitStack() as stack:
        servers = [stack.enter_context(rpc_server(engine_path)) for _ in range(2)]
        folder = stack.enter_context(short_folder())
        write_dense(tmp_path / "dense.gguf", blocks=2, context_length=CONTEXT)
        rpc = tuple(address for address, _ in servers)
        service = stack.enter_context(running_service(settings_for(folder, tmp_path, engine=str(engine_path), rpc=rpc)))
        placement: dict[str, Any] = {"devices": ["RPC1"] if also_memory else ["RPC0"]}
        for name in ("one", "two"):
            context = {"threads": 1, "size": CONTEXT}
            service.add({"id": name, "target": {"path": "dense.gguf"}, "placement": placement, "context": context})
            if also_memory:
                (device,) = (
                    each
                    for each in service.client.post(f"/profiles/{name}/check").json()["devices"]
                    if each["required_bytes"]
                )
                margin_bytes = device["free_bytes"] - device["required_bytes"] * 3 // 2
                service.client.patch(f"/profiles/{name}", json={"placement": {"margin_bytes": margin_bytes}})
            placement = {"devices": ["RPC1"]}

        assert service.complete("one").status_code == 200
        residency, rules = wanted(service, "two")
        assert residency == {"evict": ["one"], "wait": False}
        assert "residency-evicts" in rules
        first = service.newest("one")
        assert first["state"] == "ready", "a check ends nobody"
        assert service.complete("two").status_code == 200
        assert (service.newest("one")["state"], service.newest("one")["reason"]) == ("stopped", "evicted")
        told = told_until(service, "residency.evicted")
        assert (told[0]["profile_id"], told[0]["evicted_instance_ids"]) == ("two", [first["id"]])
        assert told[0]["freed_seconds"] is not None

        busy = InFlight(service, completion("two", max_tokens=1000, stream=True))
        assert busy.has_begun()
        residency, rules = wanted(service, "one")
        assert residency == {"evict": [], "wait": True}
        assert {"residency-waits", "rpc-held"} <= rules
        assert ("device-memory" in rules) is also_memory
        assert service.complete("one").status_code == 200
        answer, failure = busy.outcome()
        assert answer is not None
        assert failure is None
        assert busy.payloads[-1] == "[DONE]", "it was cut for another profile"
        assert service.newest("two")["reason"] == "evicted"
        assert service.metric("paceline_residency_evictions_total", profile="one") == 1
        # To be asked for a dry run while it has a client would be the end of a server.
        assert [server.poll() for _, server in servers] == [None, None]
