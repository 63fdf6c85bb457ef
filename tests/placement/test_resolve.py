from dataclasses import replace

import pytest
from fixtures.cases import HOST, case, devices, profile
from fixtures.tiny_models import TinyModels

from app.inventory.devices import Machine
from app.inventory.models import read_model
from app.placement.resolve import output_device, resolve


def test_context_defaults_to_8192_or_the_trained_length_for_each_slot(tiny: TinyModels) -> None:
    target = read_model(tiny.dense_target)
    assert target.context_length_trained == 4096
    resolved = resolve(case(profile(context={"slots": 3}), target=target))
    assert (resolved.context_size, resolved.context_per_slot) == (3 * 4096, 4096)
    assert resolve(case(profile())).context_size == 8192
    given = resolve(case(profile(context={"slots": 2, "size": 1000}), target=target))
    assert (given.context_size, given.context_per_slot) == (1000, 500)
    unified = resolve(case(profile(context={"slots": 2, "size": 1000, "unified_kv": True}), target=target))
    assert unified.context_per_slot == 1000


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ({}, "CUDA1"),
        ({"tensor_split": [1, 0]}, "CUDA0"),
        ({"tensor_split": [1, 2]}, "CUDA1"),
        ({"split_mode": "none"}, "CUDA0"),
        ({"split_mode": "none", "main_gpu": 1}, "CUDA1"),
        ({"gpu_layers": 0}, "none"),
        # A single unit on devices is the output, and the first of them.
        ({"gpu_layers": 1}, "CUDA0"),
        ({"gpu_layers": 2, "tensor_split": [1, 1]}, "CUDA1"),
    ],
)
def test_the_draft_goes_where_the_output_layer_is(placement: dict[str, object], expected: str) -> None:
    wanted = profile(placement=placement, speculation={"method": "draft", "draft": {"path": "d.gguf"}})
    assert resolve(case(wanted, device_names=["CUDA0", "CUDA1"])).draft_device == expected
    assert output_device(case(wanted), ()) == "none"


def test_a_small_last_share_gets_no_layer_not_even_the_output(tiny: TinyModels) -> None:
    """Nine units: llama.cpp build 11434 aborts where a drafter that borrows the head is put on CUDA1."""
    wanted = profile(
        placement={"tensor_split": [100, 1]}, speculation={"method": "dspark", "draft": {"path": "d.gguf"}}
    )
    judged = case(wanted, target=read_model(tiny.dense_target), device_names=["CUDA0", "CUDA1"])
    assert resolve(judged).draft_device == "CUDA0"


def test_the_devices_are_those_of_the_machine_that_is_asked_about() -> None:
    elsewhere = replace(case(profile()), machine=Machine(devices("CUDA0", "CUDA1")))
    assert resolve(elsewhere).devices == ("CUDA0", "CUDA1")


def test_what_the_profile_says_stays(tiny: TinyModels) -> None:
    wanted = profile(
        speculation={"method": "dspark", "draft": {"path": "d.gguf", "device": "CUDA0", "gpu_layers": 2}},
        context={"prompt_cache_bytes": 5 << 20},
    )
    resolved = resolve(case(wanted, draft=read_model(tiny.dspark), device_names=["CUDA0", "CUDA1"]))
    assert (resolved.draft_device, resolved.draft_gpu_layers) == ("CUDA0", 2)
    assert resolved.prompt_cache_bytes == 5 << 20


def test_the_prompt_cache_is_a_share_of_the_host_and_at_most_8_gib() -> None:
    assert HOST.total_bytes == 64 << 30
    assert resolve(case(profile())).prompt_cache_bytes == 8 << 30


def test_no_draft_no_draft_device() -> None:
    resolved = resolve(case(profile(speculation={"method": "mtp"}), device_names=["CUDA0"]))
    assert (resolved.draft_device, resolved.draft_gpu_layers) == (None, None)


@pytest.mark.parametrize(("method", "clamped"), [("dflash", 15), ("dspark", 16)])
def test_block_drafters_are_clamped_to_their_block(method: str, clamped: int, tiny: TinyModels) -> None:
    """As llama.cpp build 11434 logs it for these files: `exceeds the trained block size 16 -- clamping to`."""
    draft = read_model(getattr(tiny, method))
    assert draft.block_size == 16
    for wanted, expected in ((clamped, clamped), (clamped + 1, clamped), (3, 3)):
        speculation = {"method": method, "draft": {"path": "d.gguf"}, "draft_tokens_max": wanted}
        assert resolve(case(profile(speculation=speculation), draft=draft)).draft_tokens_max == expected
