"""The way of a request through the real llama-server, on the host and on two RPC devices."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fixtures.faulty_engine import ended as until_ended
from fixtures.rpc_servers import rpc_server
from fixtures.shapes import SHAPES, Shape, serve_with_exact_counts
from fixtures.tiny_models import WRONG_AFTER_D, TinyModels, write_dense
from service import InFlight, Service, completion, eventually, running_service, settings_for, short_folder, wait_for_end

from app.profiles.presets import PRESETS

pytestmark = pytest.mark.engine

# Enough to keep one thread busy for minutes.
ENDLESS_TOKENS = 100_000
LONG_CONTEXT_TOKENS = 1 << 18
# The engine notices within a second that a client who does not stream has left.
TERMINATE_SECONDS = 2.0


@pytest.fixture(scope="module")
def real(tiny: TinyModels, engine_path: Path) -> Iterator[Service]:
    """A service on the real engine, without any device."""
    with (
        short_folder() as folder,
        running_service(_settings(folder, tiny, engine_path, terminate_seconds=TERMINATE_SECONDS)) as service,
    ):
        yield service


@pytest.fixture(scope="module")
def two_devices(tiny: TinyModels, engine_path: Path, rpc_devices: tuple[str, str]) -> Iterator[Service]:
    """The same with RPC0 and RPC1."""
    with (
        short_folder() as folder,
        running_service(_settings(folder, tiny, engine_path, rpc=rpc_devices)) as service,
    ):
        yield service


def _settings(folder: Path, tiny: TinyModels, engine_path: Path, **more: Any) -> Any:
    return settings_for(folder, tiny.dense_target.parent, engine=str(engine_path), **more)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.id)
def test_a_shape_serves_with_exact_counts(real: Service, tiny: TinyModels, shape: Shape) -> None:
    instance = serve_with_exact_counts(real, shape, shape.document(tiny))
    assert instance["argv"][-2] == "--host"
    assert instance["argv"][-1].endswith(f"{instance['id']}.sock")


def _on_devices(shape_id: str, preset: str, target: str, draft: str, **patch: Any) -> Shape:
    """A DSpark preset with its own placement, CUDA devices read as RPC devices."""
    placement = next(found for found in PRESETS if found.id == preset).profile["placement"]
    devices = [name.replace("CUDA", "RPC") for name in placement["devices"]]
    laid_over = {"placement": {**placement, "devices": devices, **patch}}
    return Shape(
        shape_id, preset, target, draft, "draft-dspark", WRONG_AFTER_D, patch=laid_over, device_set=",".join(devices)
    )


SINGLE = _on_devices("single", "dspark-single-gpu", "dense_target", "dspark")
DUAL = _on_devices("dual", "dspark-dual-gpu", "dense_target", "dspark")
DUAL_EVEN = _on_devices("dual-even", "dspark-dual-gpu", "dense_target", "dspark", tensor_split=[1, 1])
HYBRID = _on_devices("hybrid", "dspark-hybrid", "moe_target", "dspark")
HYBRID_PART = _on_devices("hybrid-part", "dspark-hybrid", "moe_target", "dspark", cpu_moe_layers=5)
DUAL_OWN = _on_devices("dual-own-head", "dspark-dual-gpu", "dense_target", "dspark_own_head")
DUAL_HOST = _on_devices("dual-draft-on-host", "dspark-dual-gpu", "dense_target", "dspark_own_head")


@pytest.mark.parametrize(
    ("shape", "draft_device"),
    [
        (SINGLE, "RPC0"),
        (DUAL, "RPC1"),
        (DUAL_EVEN, "RPC1"),
        (HYBRID, "RPC0"),
        (HYBRID_PART, "RPC0"),
        # With tensors of its own a drafter runs on any device, also away from the target's output.
        (DUAL_OWN, "RPC0"),
    ],
    ids=lambda value: value.id if isinstance(value, Shape) else value,
)
def test_a_dspark_placement_on_devices(two_devices: Service, tiny: TinyModels, shape: Shape, draft_device: str) -> None:
    document = shape.document(tiny, draft_device=draft_device)
    argv = serve_with_exact_counts(two_devices, shape, document)["argv"]
    assert argv[argv.index("--spec-draft-device") + 1] == draft_device
    assert argv.index("--rpc") < argv.index("--device")


def test_a_draft_on_the_host_beside_devices_can_be_forced(two_devices: Service, tiny: TinyModels) -> None:
    document = DUAL_HOST.document(tiny, draft_device="none")
    argv = serve_with_exact_counts(two_devices, DUAL_HOST, document, judged="draft-on-host")["argv"]
    assert argv[argv.index("--spec-draft-device") + 1] == "none"


def test_a_draft_without_a_device_goes_to_the_output_layer(two_devices: Service, tiny: TinyModels) -> None:
    shape = _on_devices("dual-left-open", "dspark-dual-gpu", "dense_target", "dspark")
    argv = serve_with_exact_counts(two_devices, shape, shape.document(tiny, draft_device=None))["argv"]
    assert argv[argv.index("--spec-draft-device") + 1] == "RPC1"


def test_speculation_that_never_began_is_seen_in_the_slots(tiny: TinyModels, engine_path: Path, tmp_path: Path) -> None:
    """The engine drops a drafter without a confidence head where a threshold is set, and becomes ready all the same."""
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(f'#!/bin/sh\nexec "{engine_path}" "$@" --spec-draft-p-min 0.5\n')
    wrapper.chmod(0o755)
    with short_folder() as folder, running_service(_settings(folder, tiny, wrapper)) as service:
        service.add(
            {
                "id": "silent",
                "target": {"path": tiny.dense_target.name},
                "speculation": {"method": "dspark", "draft": {"path": tiny.dspark.name}},
                "context": {"threads": 1},
            }
        )
        instance = service.start("silent")
        assert instance["degradations"] == ["speculation-inactive"]
        assert (instance["speculation"]["asked"], instance["speculation"]["active"]) == (True, False)
        row = service.row(service.complete("silent"))
        assert (row["outcome"], row["draft_tokens"]) == ("completed", None)


@pytest.fixture(scope="module")
def endless(real: Service, tiny: TinyModels) -> str:
    """A profile with two slots whose answers take minutes."""
    write_dense(tiny.dense_target.with_name("long.gguf"), blocks=1, context_length=LONG_CONTEXT_TOKENS)
    return real.add(
        {
            "id": "endless",
            "target": {"path": "long.gguf"},
            "context": {"threads": 1, "slots": 2, "size": LONG_CONTEXT_TOKENS, "unified_kv": True},
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("streams", [[True], [False], [True, False]], ids=["stream", "whole", "both"])
def test_a_stop_ends_requests_in_flight(real: Service, endless: str, streams: list[bool]) -> None:
    """Earns the bound on every stop: the engine by itself would wait for its clients without end."""
    instance = real.start(endless)
    bodies = [completion(endless, max_tokens=ENDLESS_TOKENS, stream=stream) for stream in streams]
    requests = [InFlight(real, body) for body in bodies]
    eventually(lambda: True if real.instance(instance["id"])["leases"] == len(requests) else None)
    for request, stream in zip(requests, streams, strict=True):
        assert not stream or request.has_begun()

    began = time.monotonic()
    ended = real.stop(endless, drain_seconds=0)
    assert time.monotonic() - began < 2 * TERMINATE_SECONDS
    # The engine's handler of TERM takes the lock of its task queue. Where the signal meets the holder of that lock
    # the engine hangs, and only the second TERM ends it, with exit code 1.
    assert ended["exit_code"] in (0, 1)
    assert (ended["state"], ended["reason"]) == ("stopped", None)
    assert wait_for_end(instance["pid"], 0)
    for request, stream in zip(requests, streams, strict=True):
        answer, failure = request.outcome()
        assert answer is not None
        assert failure is None
        assert answer.status_code == (200 if stream else 502)
        told = request.payloads[-1] if stream else answer.text
        assert "the instance was stopped" in told
        row = real.row(answer)
        assert (row["outcome"], row["status_code"]) == ("upstream_failed", answer.status_code)
        assert row["error"] == "the instance was stopped while it answered"


def test_a_drain_waits_for_the_request(real: Service, endless: str) -> None:
    instance = real.start(endless)
    request = InFlight(real, completion(endless, max_tokens=4000, stream=True))
    assert request.has_begun()
    ended = real.stop(endless, drain_seconds=30)
    assert (ended["state"], ended["exit_code"]) == ("stopped", 0)
    answer, failure = request.outcome()
    assert answer is not None
    assert failure is None
    assert request.payloads[-1] == "[DONE]"
    row = real.row(answer)
    assert (row["outcome"], row["generated_tokens"], row["instance_id"]) == ("completed", 4000, instance["id"])


def test_a_stop_while_it_loads(real: Service, endless: str) -> None:
    def caught_while_loading() -> dict[str, Any] | None:
        assert real.client.post(f"/profiles/{endless}/start").status_code == 202
        ended = real.stop(endless)
        assert ended["state"] == "stopped"
        assert ended["reason"] is None
        return ended if ended["ready_at"] is None else None

    ended = eventually(caught_while_loading)
    # Until it is loaded the engine has no handler: TERM ends it at once.
    assert ended["exit_code"] == -15


def test_a_lost_device_ends_the_instance(tiny: TinyModels, engine_path: Path) -> None:
    with ExitStack() as stack:
        address, device = stack.enter_context(rpc_server(engine_path))
        folder = stack.enter_context(short_folder())
        settings = _settings(folder, tiny, engine_path, rpc=(address,))
        service = stack.enter_context(running_service(settings))
        service.add({"id": "remote", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
        instance = service.start("remote")
        assert service.complete("remote").status_code == 200
        device.kill()
        device.wait()

        answer = service.complete("remote", "another prompt")
        assert answer.status_code == 502
        assert service.row(answer)["outcome"] == "upstream_failed"
        assert wait_for_end(instance["pid"])
        failed = until_ended(service, instance["id"])
        assert (failed["state"], failed["exit_code"], failed["reason"]) == ("failed", -6, "killed-by-signal-6")
        assert service.complete("remote").status_code == 503
