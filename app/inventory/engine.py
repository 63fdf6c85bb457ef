"""EngineFacts: what the engine says of itself. A value; `llama_server/probe.py` asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.inventory.devices import Device


class EngineKind(StrEnum):
    """Which program runs."""

    LLAMA_SERVER = "llama-server"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """One entry of `--help`: all its spellings, and whether a value follows."""

    names: tuple[str, ...]
    takes_value: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine: how it is started, its build, its flags by spelling, the methods and devices it knows.

    `build` names the engine in records. A source build of llama.cpp has no build number, so it is a digest of the
    program where the version says nothing. `device_backends` are the kinds of devices that this build could drive, None
    where that cannot be told.
    """

    kind: EngineKind
    command: Sequence[str]
    build: str
    flags: Mapping[str, EngineFlag] = field(default_factory=dict)
    spec_types: frozenset[str] = frozenset()
    devices: Sequence[Device] = ()
    device_backends: frozenset[str] | None = None

    def elsewhere(self, devices: Sequence[Device]) -> "EngineFacts":
        """The engine as it would be on a machine with these devices: one that can be told which to use.

        The embedded engine cannot, and it is the one here only because there is no other.
        """
        chosen = EngineFlag(("-dev", "--device"), takes_value=True)
        flags = {**dict.fromkeys(chosen.names, chosen), **self.flags} if devices else self.flags
        return replace(self, flags=flags, devices=devices)

    @property
    def takes_devices(self) -> bool:
        """Whether `--device` chooses devices; the embedded engine always uses what it has."""
        return "--device" in self.flags

    @property
    def device_names(self) -> tuple[str, ...]:
        """Device names in the engine's own order."""
        return tuple(device.name for device in self.devices)
