"""A model's shape keys, read without the architecture's prefix, as numbers or as one number per layer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.inventory.gguf_header import MetadataValue
from app.inventory.models import ModelFile

# Above any shape; a larger number is damage, and would only make the arithmetic slow.
_NUMBER_MAX = 1 << 32


@dataclass(slots=True)
class HeaderKeys:
    """Typed reading that never raises: what is not as expected counts as absent and is noted in `doubts`."""

    model: ModelFile
    doubts: list[str] = field(default_factory=list)

    def number(self, key: str, default: int = 0) -> int:
        """A whole number; of an array the largest entry."""
        return self.per_layer(key, 1, default)[0]

    def has(self, key: str) -> bool:
        """Whether the file has the key at all."""
        return self._value(key) is not None

    def per_layer(self, key: str, layers: int, default: int = 0) -> tuple[int, ...]:
        """One number for each of `layers`: the file's array, or its one number repeated."""
        value = self._value(key)
        if value is None:
            return (default,) * layers
        if isinstance(value, int) and _is_number(value):
            return (value,) * layers
        if isinstance(value, tuple) and len(value) >= layers and all(map(_is_number, value)):
            numbers = tuple(map(int, value))
            return (max(numbers),) if layers == 1 and numbers else numbers[:layers]
        self.doubts.append(f"{key} is not a number for each layer")
        return (default,) * layers

    def flags(self, key: str, layers: int) -> Sequence[bool] | None:
        """A yes or no for each layer, None where the file has no such array."""
        value = self._value(key)
        if isinstance(value, tuple) and len(value) >= layers:
            return [bool(entry) for entry in value[:layers]]
        return None

    def _value(self, key: str) -> MetadataValue | None:
        return self.model.header.metadata.get(f"{self.model.architecture}.{key}")


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _NUMBER_MAX
