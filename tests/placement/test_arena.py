"""The engine's way to pack tensors."""

from app.placement.arena import Arena


def test_a_tensor_goes_into_the_smallest_hole_that_holds_it() -> None:
    arena = Arena()
    wide, _, narrow, _ = (arena.take(n_bytes) for n_bytes in (30, 1, 20, 1))
    arena.free(wide, narrow)
    assert arena.take(15) == (31, 15)
    assert arena.take(15) == (0, 15)
    assert arena.peak_bytes == 52


def test_what_fits_into_no_hole_goes_to_the_end() -> None:
    arena = Arena()
    first, _ = arena.take(10), arena.take(1)
    arena.free(first)
    assert arena.take(11) == (11, 11)
    assert arena.peak_bytes == 22


def test_neighbouring_holes_become_one_and_one_at_the_end_is_gone() -> None:
    arena = Arena()
    first, second, third = (arena.take(10) for _ in range(3))
    arena.free(first)
    arena.free(third)
    arena.free(second)
    assert arena.take(40) == (0, 40)
    assert arena.peak_bytes == 40


def test_nothing_takes_no_room() -> None:
    arena = Arena()
    first, last = arena.take(10), arena.take(10)
    arena.free(first, arena.take(0))
    assert arena.take(10) == first
    arena.free(first, last)
    assert arena.take(1) == (0, 1)
