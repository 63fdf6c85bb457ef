"""The launch shapes of the mission, judged through the API by the plan and by the engine's own dry run.

Two RPC devices stand for two cards; models of real shapes are headers without weights, so they are checked and the tiny
ones are launched too.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fixtures.rpc_servers import rpc_server
from fixtures.sparse_models import write_model
from fixtures.tiny_models import TinyModels
from service import Service, running_service, settings_for, short_folder

pytestmark = pytest.mark.engine

GIB = 1 << 30
LARGE = "qwen3moe_30b glm4moe_air qwen3moe_235b laguna_118b dflash_laguna gemma3_27b qwen3_8b qwen3_06b_draft".split()
TERMS = set(
    "weights kv_cache recurrent_state compute draft_weights draft_kv_cache draft_compute projector host_caches "
    "overhead".split()
)


@pytest.fixture(scope="module")
def planned(engine_path: Path, tiny: TinyModels) -> Iterator[Service]:
    """A service on the real engine with two devices of its own, tiny and large models beside each other."""
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        first, second = (stack.enter_context(rpc_server(engine_path))[0] for _ in range(2))
        models = folder / "models"
        models.mkdir()
        for path in tiny.dense_target.parent.iterdir():
            (models / path.name).write_bytes(path.read_bytes())
        for name in LARGE:
            write_model(name, models)
        settings = settings_for(folder, models, engine=str(engine_path), rpc=(first, second), margin_bytes=256 << 20)
        yield stack.enter_context(running_service(settings))


def check(service: Service, document: dict[str, Any], machine: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = service.client.post("/check", json={"profile": {"id": "x", **document}, "machine": machine})
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    for device in report["devices"]:
        assert set(device["terms"]) == TERMS
        assert sum(device["terms"].values()) == device["required_bytes"]
    return report


def errors(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [found for found in report["findings"] if found["severity"] == "error"]


def two_cards(total_bytes: int, host_bytes: int = 128 * GIB) -> dict[str, Any]:
    card = {"total_bytes": total_bytes, "free_bytes": total_bytes - GIB // 2}
    return {
        "devices": [{"name": "CUDA0", **card}, {"name": "CUDA1", **card}],
        "host": {"total_bytes": host_bytes, "available_bytes": host_bytes - 4 * GIB, "physical_cores": 16},
    }


def test_the_engine_confirms_the_plan_of_a_split_model(planned: Service) -> None:
    placement = {"devices": ["RPC0", "RPC1"], "tensor_split": [1, 1]}
    report = check(planned, {"target": {"path": "qwen3moe_30b.gguf"}, "placement": placement})
    assert (report["estimate_source"], errors(report)) == ("engine", [])
    assert "plan-disagrees" not in [found["rule"] for found in report["findings"]]
    assert [span["device"] for span in report["layers"]] == ["RPC0", "RPC1"]
    assert all(device["terms"]["weights"] > 8 * GIB for device in report["devices"])


@pytest.mark.parametrize(
    "changes",
    [
        {"target": {"path": "qwen3moe_30b.gguf"}, "placement": {"cpu_moe_layers": 20}},
        {
            "target": {"path": "qwen3moe_30b.gguf"},
            "context": {"slots": 4, "size": 16384, "k_type": "q8_0", "v_type": "q8_0"},
        },
        {
            "target": {"path": "qwen3moe_30b.gguf"},
            "placement": {"gpu_layers": 30},
            "context": {"flash_attention": "off"},
        },
        {"target": {"path": "qwen3_8b.gguf"}, "context": {"size": 32768, "k_type": "f32", "v_type": "f32"}},
        {"target": {"path": "glm4moe_air.gguf"}, "placement": {"cpu_moe_layers": "all"}},
        {"target": {"path": "glm4moe_air.gguf"}, "speculation": {"method": "mtp"}, "placement": {"cpu_moe_layers": 40}},
        {"target": {"path": "gemma3_27b.gguf"}, "context": {"slots": 2, "unified_kv": True, "ubatch_size": 1024}},
        {
            "target": {"path": "qwen3_8b.gguf"},
            "speculation": {"method": "draft", "draft": {"path": "qwen3_06b_draft.gguf", "device": "RPC0"}},
        },
    ],
)
def test_the_plan_agrees_with_a_fresh_dry_run(planned: Service, changes: dict[str, Any]) -> None:
    placement = {"devices": ["RPC0", "RPC1"], "tensor_split": [2, 1], **changes.get("placement", {})}
    context = {"size": 8192, **changes.get("context", {})}
    report = check(planned, {**changes, "placement": placement, "context": context})
    assert report["estimate_source"] == "engine"
    assert [found for found in report["findings"] if found["rule"] in ("plan-disagrees", "engine-refuses")] == []


def test_a_borrowing_drafter_on_the_wrong_device_is_refused_and_the_fix_launches(planned: Service) -> None:
    document = {
        "id": "wrong-device",
        "target": {"path": "dense.gguf"},
        "context": {"threads": 1},
        "placement": {"devices": ["RPC0", "RPC1"], "tensor_split": [1, 1]},
        "speculation": {"method": "dspark", "draft": {"path": "dspark.gguf", "device": "RPC0"}},
    }
    planned.add(document)
    refused = planned.client.post("/profiles/wrong-device/start", params={"wait": True, "force": True})
    assert refused.status_code == 409
    (found,) = errors(refused.json()["report"])
    assert found["rule"] == "draft-not-with-output"
    patched = planned.client.patch("/profiles/wrong-device", json=found["fixes"][0]["patch"])
    assert patched.json()["speculation"]["draft"]["device"] == "RPC1"
    instance = planned.start("wrong-device")
    assert (instance["speculation"]["active"], instance["degradations"]) == (True, [])
    assert instance["memory"]["predicted"]["RPC1"]["draft_weights"] > 0
    planned.stop("wrong-device")


def test_experts_on_the_host_unbalance_the_cards_and_a_split_helps(planned: Service) -> None:
    document = {
        "target": {"path": "qwen3moe_235b.gguf"},
        "context": {"size": 32768},
        "placement": {"devices": ["RPC0", "RPC1"], "tensor_split": [1, 1], "cpu_moe_layers": 60},
    }
    report = check(planned, document)
    assert "device-memory" in [found["rule"] for found in errors(report)]
    first, last = report["devices"]
    assert last["required_bytes"] > 10 * first["required_bytes"]
    two = two_cards(48 * GIB, host_bytes=256 * GIB)
    placement = {**document["placement"], "devices": ["CUDA0", "CUDA1"], "cpu_moe_layers": 50}
    report = check(planned, {**document, "placement": placement}, two)
    (found,) = (found for found in errors(report) if found["rule"] == "device-memory")
    splits = [fix for fix in found["fixes"] if "tensor_split" in fix["patch"].get("placement", {})]
    assert splits, found
    mended = {**document, "placement": {**placement, **splits[0]["patch"]["placement"]}}
    assert "device-memory" not in [found["rule"] for found in errors(check(planned, mended, two))]


def test_an_mtp_profile_whose_context_does_not_fit(planned: Service) -> None:
    document = {
        "target": {"path": "glm4moe_air.gguf"},
        "speculation": {"method": "mtp"},
        "placement": {"devices": ["CUDA0", "CUDA1"], "tensor_split": [1, 1]},
        "context": {"size": 131072},
    }
    report = check(planned, document, two_cards(32 * GIB))
    (found,) = (found for found in errors(report) if found["rule"] == "device-memory")
    assert sum(device["terms"]["draft_kv_cache"] for device in report["devices"]) > 0
    assert found["fixes"]
    for fix in found["fixes"]:
        patch = fix["patch"]
        mended = {key: {**document.get(key, {}), **patch.get(key, {})} for key in {*document, *patch}}
        assert "device-memory" not in [one["rule"] for one in errors(check(planned, mended, two_cards(32 * GIB)))]


def test_a_large_mixture_with_a_half_precision_drafter_on_two_cards(planned: Service) -> None:
    document = {
        "target": {"path": "laguna_118b.gguf"},
        "speculation": {"method": "dflash", "draft": {"path": "dflash_laguna.gguf"}, "draft_tokens_max": 16},
        "placement": {"devices": ["CUDA0", "CUDA1"], "tensor_split": [1, 1]},
        "context": {"size": 32768},
    }
    report = check(planned, document, two_cards(32 * GIB))
    assert "device-memory" in [found["rule"] for found in errors(report)]
    placement = {**document["placement"], "cpu_moe_layers": "all", "tensor_split": [3, 2]}
    hybrid = check(planned, {**document, "placement": placement}, two_cards(32 * GIB))
    assert "device-memory" not in [found["rule"] for found in errors(hybrid)]
    warned = {found["rule"] for found in hybrid["findings"]}
    assert {"offloaded-draft-length", "offloaded-draft-probability", "draft-precision"} <= warned


def test_a_part_of_a_set_that_is_missing_is_named(planned: Service, tiny: TinyModels) -> None:
    with short_folder() as folder:
        for part in tiny.dense_target_parts[:2]:
            (folder / part.name).write_bytes(part.read_bytes())
        with running_service(settings_for(folder, folder)) as service:
            (found,) = errors(check(service, {"target": {"path": tiny.dense_target_parts[0].name}}))
    assert found["rule"] == "target-unreadable"
    assert tiny.dense_target_parts[2].name in found["message"]


def test_two_starts_are_never_promised_the_same_bytes(planned: Service) -> None:
    """What is loading is not seen by any driver yet: the plan of the next one must know of it."""
    report = check(planned, {"target": {"path": "dense.gguf"}, "placement": {"devices": ["RPC0"]}})
    before = report["devices"][0]["reserved_bytes"]
    planned.add(
        {
            "id": "holder",
            "target": {"path": "dense.gguf"},
            "placement": {"devices": ["RPC0"]},
            "context": {"threads": 1},
            "serving": {"pinned": True},
        }
    )
    planned.start("holder")
    report = check(planned, {"target": {"path": "dense.gguf"}, "placement": {"devices": ["RPC0"]}})
    assert report["devices"][0]["reserved_bytes"] > before
    assert report["estimate_source"] == "analytic"
    planned.stop("holder")
