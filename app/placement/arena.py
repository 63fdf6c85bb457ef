"""Arena: how the engine packs the tensors of a graph into one buffer, holes between them included."""

from typing import TypeAlias

# Where it begins and how many bytes it has.
Room: TypeAlias = tuple[int, int]


class Arena:
    """One growing buffer: a tensor goes into the smallest hole that holds it, else to the end.

    The manner of llama.cpp's graph allocator (`ggml-alloc.c`), which plans a buffer before any of it exists.
    `peak_bytes` is the size that the buffer must have.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._end = 0
        self._holes: list[Room] = []

    def take(self, n_bytes: int) -> Room:
        """Room for one tensor, to be given back with `free`; none for a size of 0."""
        if not n_bytes:
            return self._end, 0
        # Of holes of one size the engine takes the last.
        fitting = min(((size, -start) for start, size in self._holes if size >= n_bytes), default=None)
        if fitting is None:
            room = self._end, n_bytes
            self._end += n_bytes
            self.peak_bytes = max(self.peak_bytes, self._end)
            return room
        size, start = fitting[0], -fitting[1]
        self._holes.remove((start, size))
        if size > n_bytes:
            self._holes.append((start + n_bytes, size - n_bytes))
        return start, n_bytes

    def free(self, *rooms: Room) -> None:
        """Give rooms back. Neighbouring holes become one; one at the end is free for anything that comes."""
        holes: list[Room] = []
        for start, size in sorted(room for room in (*self._holes, *rooms) if room[1]):
            if holes and sum(holes[-1]) == start:
                holes[-1] = (holes[-1][0], holes[-1][1] + size)
            else:
                holes.append((start, size))
        if holes and sum(holes[-1]) == self._end:
            self._end = holes.pop()[0]
        self._holes = holes
