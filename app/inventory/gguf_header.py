"""What the header of one GGUF file holds, and typed access to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from app.errors import ModelFileUnreadable
from app.inventory.ggml_types import tensor_type_name
from app.inventory.gguf_cursor import shown


class ValueType(IntEnum):
    """The types a metadata value, or the entries of an array, can have."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """An array that was passed over: every array of strings, and long ones of numbers.

    `digest` is over the raw bytes, which lie at `offset_bytes` of the file and are `n_bytes` long.
    """

    element_type: ValueType
    count: int
    digest: str
    offset_bytes: int
    n_bytes: int

    def __str__(self) -> str:
        return f"an array of {self.count} {self.element_type.name.lower()}"


Numbers = tuple[int, ...] | tuple[float, ...]
MetadataValue = int | float | bool | str | Numbers | ArraySummary


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. `shape` is in file order (row length first); `offset_bytes` counts from the data.

    `n_bytes` excludes padding. Where the type is not known it is the room up to the next tensor.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset_bytes: int
    n_bytes: int

    @property
    def type_name(self) -> str:
        """`Q4_K`, or `type-57` where the id is not known."""
        return tensor_type_name(self.type_id)


@dataclass(frozen=True)
class GgufHeader:
    """What one GGUF file says of itself; `tensors` are by name, in file order.

    The typed readers give None where the key is absent, and raise ModelFileUnreadable where its
    value is of another kind: llama.cpp refuses such a file too.
    """

    path: Path
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, TensorInfo]
    alignment_bytes: int
    data_offset_bytes: int
    file_size_bytes: int

    def text(self, key: str) -> str | None:
        """A string value."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._unlike(key, "text")

    def flag(self, key: str) -> bool | None:
        """A boolean value."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._unlike(key, "true or false")

    def count(self, key: str, most: int) -> int | None:
        """A whole number from 0 to `most`.

        Where a value per layer is given instead (llama.cpp allows either), the largest of them.
        """
        value = self.metadata.get(key)
        if value is None:
            return None
        numbers = value if isinstance(value, tuple) else (value,)
        if numbers and all(type(number) is int and 0 <= number <= most for number in numbers):
            return int(max(number for number in numbers if isinstance(number, int)))
        raise self._unlike(key, f"a whole number from 0 to {most}")

    def integers(self, key: str) -> tuple[int, ...] | None:
        """An array of whole numbers."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, tuple):
            numbers = tuple(number for number in value if type(number) is int)
            if len(numbers) == len(value):
                return numbers
        raise self._unlike(key, "an array of whole numbers")

    def length(self, key: str) -> int | None:
        """How many entries an array has."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, tuple):
            return len(value)
        if isinstance(value, ArraySummary):
            return value.count
        raise self._unlike(key, "an array")

    def _unlike(self, key: str, expected: str) -> ModelFileUnreadable:
        value = self.metadata[key]
        seen = str(value) if isinstance(value, ArraySummary) else repr(value)[:80]
        return ModelFileUnreadable(
            f"{shown(self.path)}: expected {expected} as {key}, saw {seen}: "
            "the file is damaged or was converted wrongly, fetch or convert it again",
            path=shown(self.path),
            key=key,
            expected=expected,
            observed=seen,
        )
