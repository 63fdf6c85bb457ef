"""Context sizes as the engine rounds them, and what cache types weigh."""

import pytest

from app.placement.context import ContextSize, row_bytes


@pytest.mark.parametrize(
    ("tokens", "slots", "is_unified", "cells", "total"),
    [
        (32_768, 1, False, 32_768, 32_768),
        (1000, 1, False, 1024, 1024),
        # The log says that it rounds down.
        (10_000, 3, False, 3584, 10_752),
        (1000, 2, False, 512, 1024),
        (1000, 2, True, 1024, 1024),
        (1, 4, False, 256, 1024),
    ],
)
def test_cells_are_rounded_up_to_256(tokens: int, slots: int, is_unified: bool, cells: int, total: int) -> None:
    size = ContextSize(tokens=tokens, slots=slots, is_unified=is_unified)
    assert (size.cells, size.total_tokens) == (cells, total)


@pytest.mark.parametrize(
    ("size", "cells"),
    [
        (ContextSize(tokens=32_768), 1536),
        (ContextSize(tokens=32_768, ubatch_size=2048), 3072),
        (ContextSize(tokens=32_768, slots=4), 1536),
        # One window for all slots: less than four of their own.
        (ContextSize(tokens=32_768, slots=4, is_unified=True), 4608),
        (ContextSize(tokens=1024), 1024),
        (ContextSize(tokens=32_768, full_windows=True), 32_768),
    ],
)
def test_a_window_has_room_for_a_micro_batch(size: ContextSize, cells: int) -> None:
    assert size.window_cells(1024) == cells


def test_a_micro_batch_is_no_longer_than_batch_and_context() -> None:
    assert ContextSize(tokens=300).ubatch_tokens == 300
    assert ContextSize(tokens=4096, batch_size=256).ubatch_tokens == 256


@pytest.mark.parametrize(
    ("type_name", "expected"), [("f32", 4096), ("f16", 2048), ("bf16", 2048), ("q8_0", 1088), ("q4_0", 576)]
)
def test_rows_weigh_what_their_type_says(type_name: str, expected: int) -> None:
    assert row_bytes(type_name, 1024) == expected
