"""`paceline devices`, `models` and `inspect`."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli.paceline_command import paceline
from fixtures.model_files import write, write_set
from fixtures.tiny_models import TinyModels
from rich.console import Console
from service import Service

from app.cli.exit_codes import Exit
from app.cli.inventory_text import print_devices, print_models

GIB = 1 << 30
HOST = {"total_bytes": 64 * GIB, "available_bytes": None, "physical_cores": None}
NOTHING: dict[str, Any] = {"devices": [], "host": HOST, "live": {}, "usage": {}, "unlisted": [], "problems": []}


def printed(seen: dict[str, Any]) -> list[str]:
    text = io.StringIO()
    print_devices(Console(file=text, width=200, markup=False, highlight=False), seen)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_a_machine_without_devices() -> None:
    seen = {**NOTHING, "unlisted": ["NVIDIA GeForce RTX 4090"], "problems": ["no engine: install one"]}
    assert printed(seen) == [
        "no devices: the host computes",
        "host: an unknown amount of 64.0 GiB available, - cores",
        "the driver shows NVIDIA GeForce RTX 4090, which the engine does not list",
        "no engine: install one",
    ]


def test_devices_and_who_holds_their_memory() -> None:
    device = {"name": "CUDA0", "description": "GB10", "integrated": True, "total_bytes": 24 * GIB, "free_bytes": GIB}
    live = {"utilisation": {"busy_rate": 0.5}, "temperature_celsius": 61, "power_watts": 321.5, "pcie": None}
    holders = [
        {"pid": 7, "used_bytes": GIB, "instance_id": "i", "profile_id": "gemma"},
        {"pid": 8, "used_bytes": None, "instance_id": None, "profile_id": None},
    ]
    usage = {"reserved_bytes": 2 * GIB, "holders": holders, "mismatch": None, "is_stale": True}
    other = {**device, "name": "Vulkan0", "description": "RX 7900", "integrated": False}
    told = {"reserved_bytes": 0, "holders": [], "mismatch": "the driver shows no card 0000:0a:00.0", "is_stale": False}
    lines = printed(
        {
            **NOTHING,
            "devices": [device, other],
            "live": {"CUDA0": live},
            "usage": {"CUDA0": usage, "Vulkan0": told},
        }
    )
    assert lines[1].split("  ")[0] == "CUDA0"
    cells = [cell.strip() for cell in lines[1].split("  ") if cell]
    assert cells == [
        "CUDA0",
        "GB10, shares the host's memory",
        "1.0 GiB",
        "24.0 GiB",
        "2.0 GiB",
        "50%",
        "61",
        "322",
        "-",
    ]
    assert lines[2].split() == ["Vulkan0", "RX", "7900", "1.0", "GiB", "24.0", "GiB", "-", "-", "-", "-", "-"]
    assert lines[4:] == [
        "CUDA0: pid 7 holds 1.0 GiB, gemma (instance i)",
        "CUDA0: pid 8 holds an unknown amount, not ours",
        "CUDA0: as it was before our engines took memory of it",
        "Vulkan0: the driver shows no card 0000:0a:00.0",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_a_narrow_terminal_shows_whole_names_and_fewer_columns(width: int) -> None:
    shape = {"kind": "target", "architecture": "qwen3moe", "size_bytes": 18 * GIB, "quantisation": "Q4_K_M",
             "largest_type": None, "block_count": 48, "nextn_layers": 0, "expert_count": 128,
             "context_length_trained": 262144, "vocabulary_size": 151936}  # fmt: skip
    path = "qwen3-coder-30b-a3b-instruct-q4_k_m.gguf"
    text = io.StringIO()
    print_models(
        Console(file=text, width=width, force_terminal=True, color_system=None), [{"path": path, "shape": shape}]
    )
    heads, row = text.getvalue().splitlines()
    assert row.startswith(path)
    assert len(row) <= max(width, len(path))
    assert ("size" in heads) == (width >= 60)
    assert ("vocabulary" in heads) == (width >= 120)


def test_devices_of_a_running_service(service: Service, tmp_path: Path) -> None:
    settings = {"PACELINE_URL": service.base_url}
    exported = paceline("devices", "--json", cwd=tmp_path, settings=settings)
    assert exported.code == Exit.DONE
    machine = json.loads(exported.out)
    assert set(machine) == {"devices", "host"}
    profile = {"id": "p", "target": {"path": "dense.gguf"}}
    assert service.client.post("/check", json={"profile": profile, "machine": machine}).status_code == 200
    assert "cores" in paceline("devices", cwd=tmp_path, settings=settings).out


def test_models_of_a_running_service(service: Service, tmp_path: Path) -> None:
    settings = {"PACELINE_URL": service.base_url}
    shown = paceline("models", cwd=tmp_path, settings=settings)
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines()}
    assert rows["dense.gguf"][1:3] == ["target", "llama"]
    assert rows["dspark.gguf"][1:3] == ["dspark", "dflash"]
    listed = json.loads(paceline("models", "--json", cwd=tmp_path, settings=settings).out)
    assert {model["path"] for model in listed if model["shape"]} >= {"dense.gguf", "dspark.gguf"}


def test_inspect_a_file_here_or_in_the_model_folders(tmp_path: Path, tiny: TinyModels) -> None:
    write(tmp_path / "here.gguf", keys={"block_count": 2, "general.name": "Here"})
    shown = paceline("inspect", "here.gguf", cwd=tmp_path)
    assert shown.code == Exit.DONE
    facts = {line[:16].strip(): line[16:] for line in shown.out.splitlines()}
    assert (facts["name"], facts["kind"], facts["layers"], facts["tensors"]) == ("Here", "target", "2", "3")
    assert facts["in F32"] == "384 B"
    folder = {"PACELINE_MODEL_DIRS": str(tiny.dense_target.parent)}
    found = paceline("inspect", "--json", "dspark.gguf", cwd=tmp_path, settings=folder)
    assert json.loads(found.out)["kind"] == "dspark"


def test_inspect_says_what_is_wrong(tmp_path: Path) -> None:
    folder = {"PACELINE_MODEL_DIRS": str(tmp_path)}
    absent = paceline("inspect", "absent.gguf", cwd=tmp_path, settings=folder)
    assert absent.code == Exit.REFUSED
    assert absent.err.startswith("paceline: there is no absent.gguf in the model folders")
    (tmp_path / "bad.gguf").write_bytes(b"no model at all")
    bad = paceline("inspect", "bad.gguf", cwd=tmp_path)
    assert bad.code == Exit.REFUSED
    assert "not a GGUF file" in bad.err


def test_inspect_a_set_whose_names_llama_cpp_does_not_take(tmp_path: Path) -> None:
    paths = write_set(tmp_path, 2, separator=".")
    shown = paceline("inspect", paths[1].name, cwd=tmp_path)
    assert shown.code == Exit.REFUSED
    assert "2 files" in shown.out
    assert "llama.cpp does not find the parts" in shown.out
