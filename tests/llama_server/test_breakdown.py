"""Recorded output of build 11434 on two RPC devices and on none, cut where the load begins."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.llama_server.breakdown import Breakdown, Figures, read_line, read_tables
from app.llama_server.dry_run_output import DryRunOutput

CAPTURED = Path(__file__).parent.parent / "fixtures" / "captured"


def recorded(name: str) -> list[str]:
    (path,) = CAPTURED.glob(f"dry_run_{name}.*l")
    return path.read_text(encoding="utf-8").splitlines()


def read(name: str) -> tuple[DryRunOutput, int]:
    """What was said until nothing more will be, and how many lines that took."""
    said = DryRunOutput()
    for number, line in enumerate(recorded(name), 1):
        said.add(line)
        if said.measured:
            return said, number
    raise AssertionError(f"{name} never said all")


def mib(breakdown: Breakdown | None) -> Mapping[str, tuple[int, int, int]]:
    assert breakdown is not None
    rows = {**breakdown.devices, "Host": breakdown.host}
    return {name: (f.model_bytes >> 20, f.context_bytes >> 20, f.compute_bytes >> 20) for name, f in rows.items()}


def test_no_device_is_all_on_the_host() -> None:
    said, _ = read("baseline_0_devices")
    assert mib(said.target) == {"Host": (604, 3584, 60)}
    assert said.extra is None


def test_one_and_two_devices() -> None:
    assert mib(read("baseline_1_device")[0].target) == {"RPC0": (17524, 3072, 116), "Host": (166, 0, 48)}
    assert mib(read("baseline_2_devices")[0].target) == {
        "RPC0": (20038, 5248, 552),
        "RPC1": (19940, 4992, 472),
        "Host": (563, 0, 288),
    }


def test_weights_repacked_for_the_processor_belong_to_the_host() -> None:
    said, _ = read("hybrid_with_draft")
    assert said.target is not None
    assert said.target.host_row.model_bytes == 1741 << 20
    assert said.target.buffer_types == {"CPU_REPACK": Figures(model_bytes=5400 << 20)}
    assert mib(said.target)["Host"] == (1741 + 5400, 0, 108)


def test_the_draft_is_the_second_of_two() -> None:
    assert mib(read("hybrid_with_draft")[0].extra) == {"RPC1": (604, 3584, 58), "Host": (157, 0, 40)}
    # A device that the target does not use is measured too.
    assert mib(read("draft_on_another_device")[0].extra) == {"RPC1": (604, 3584, 58), "Host": (157, 0, 40)}
    assert mib(read("draft_on_host")[0].extra) == {"Host": (604, 3584, 60)}


def test_an_mtp_context_repeats_the_weights_of_the_target() -> None:
    said, _ = read("mtp_2_devices")
    assert mib(said.target)["RPC1"] == (28205, 2816, 354)
    assert mib(said.extra) == {"RPC0": (27020, 0, 0), "RPC1": (28205, 128, 308), "Host": (333, 0, 160)}


@pytest.mark.parametrize("name", ["dspark_blind", "eagle3_blind"])
def test_a_drafter_without_embeddings_cannot_be_measured(name: str) -> None:
    said, _ = read(name)
    assert said.target is not None
    assert said.extra is None
    assert said.extra_error is not None
    assert said.extra_needs_target


def test_a_drafter_with_its_own_head_is_measured() -> None:
    assert mib(read("dflash_own_head")[0].extra)["RPC0"] == (4, 0, 64)


@pytest.mark.parametrize("path", sorted(CAPTURED.glob("dry_run_*.jsonl")), ids=lambda path: path.stem[8:])
def test_all_is_said_before_the_load_begins(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    said = DryRunOutput()
    load = next((n for n, line in enumerate(lines) if "load_tensors: loading" in line), len(lines))
    for line in lines[:load]:
        said.add(line)
    # A flag that is refused leaves nothing to measure.
    assert said.measured is (path.stem != "dry_run_device_invalid")


def test_only_the_launch_as_asked_counts_where_the_engine_searches() -> None:
    said = DryRunOutput()
    for line in recorded("fit_searches"):
        said.add(line)
    assert said.remeasured
    assert said.fit_ended
    assert mib(said.target)["RPC0"] == (8975, 1600, 264)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("target_missing", "failed to load model"),
        ("v_without_flash_attention", "failed to create llama_context from model"),
    ],
)
def test_a_target_that_cannot_be_measured(name: str, error: str) -> None:
    said, _ = read(name)
    assert said.target is None
    assert said.target_error == error


@pytest.mark.parametrize("name", ["mtp_absent", "draft_missing"])
def test_a_draft_that_cannot_be_measured(name: str) -> None:
    said, _ = read(name)
    assert said.target is not None
    assert said.extra_error is not None
    assert not said.extra_needs_target


def test_tensor_mode_is_not_measured() -> None:
    said, _ = read("split_tensor")
    assert said.target is None
    assert said.gave_up is not None
    assert "SPLIT_MODE_TENSOR" in said.gave_up


def test_records_become_lines_as_the_engine_writes_them() -> None:
    text, breakdown = read_line(json.dumps({"type": "log", "time": 61_234_567, "level": "error", "msg": "it broke\n"}))
    assert text == "1.01.234.567 E it broke"
    assert breakdown is None


@pytest.mark.parametrize(
    "line",
    [
        "error: invalid argument: --nope",
        "{not json",
        '{"type": "fit_memory_breakdown", "data": {"unit": "MiB", "rows": [{"kind": "host", "name": "Host"}]}}',
        '{"type": "fit_memory_breakdown", "data": {"unit": "GiB", "rows": []}}',
        '{"type": "log", "time": "soon", "level": "info", "msg": "x"}',
        "{}",
    ],
)
def test_what_is_not_understood_is_text(line: str) -> None:
    assert read_line(line) == (line, None)


def test_text_tables_say_the_same() -> None:
    said, _ = read("hybrid_with_draft")
    text = (CAPTURED / "dry_run_hybrid_with_draft.txt").read_text(encoding="utf-8")
    assert read_tables(text.splitlines()) == [said.target, said.extra]


def test_a_table_ends_with_its_last_row() -> None:
    head = "x: | memory breakdown [MiB] | total free self model context compute unaccounted |"
    host = "x: |   - Host |  6 =   1 +  2 +   3   |"
    assert read_tables([head, host, "something else", host]) == [Breakdown({}, Figures(1 << 20, 2 << 20, 3 << 20))]


def test_a_buffer_of_an_rpc_server_is_not_host_memory() -> None:
    tables = Breakdown({}, Figures(1, 1, 1), {"CPU_REPACK": Figures(2), "RPC0[127.0.0.1:1]": Figures(4)})
    assert tables.host == Figures(3, 1, 1)
