"""A machine in the body of a question: what a placement is judged against, instead of this machine."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from app.inventory.devices import Device, Host, Machine
from app.inventory.integrated import is_integrated
from app.placement.budgets import HOST_NAME
from app.placement.resolve import NO_DEVICE
from app.profiles.profile import Text

# A search tries sets of devices; no engine lists nearly as many.
_DEVICES_MOST: Final = 64
# Past anything that is built, and safe to compute with.
_BYTES_MOST: Final = 1 << 50
# Where a device may stand, so may these; `CPU` is what tensors are overridden to.
_RESERVED: Final = frozenset({HOST_NAME, NO_DEVICE, "cpu"})

Bytes = Annotated[int, Field(ge=0, le=_BYTES_MOST)]
# As engines print them: a backend's name and a number.
PrintedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
ShortText = Annotated[Text, Field(max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceBody(_Strict):
    """A device of a machine that is asked about, named as its engine lists it (`CUDA0`, `Vulkan1`, …).

    `integrated` says whether its memory is the host's; null: told from `name` and `description`, as of a device here.
    """

    name: PrintedName
    description: ShortText = ""
    uuid: ShortText | None = None
    pci_bus_id: ShortText | None = None
    integrated: bool | None = None
    total_bytes: Bytes = 0
    free_bytes: Bytes = 0

    @field_validator("name")
    @classmethod
    def _names_a_device(cls, name: str) -> str:
        if name.lower() in _RESERVED:
            raise ValueError(f'"{name}" never names a device')
        return name

    @field_validator("free_bytes")
    @classmethod
    def _within_total(cls, free_bytes: int, info: ValidationInfo) -> int:
        # 0 is a total that is not known.
        return _within(free_bytes, info.data.get("total_bytes") or None)

    def value(self) -> Device:
        """The domain value."""
        told = self.model_dump()
        if self.integrated is None:
            told["integrated"] = is_integrated(self.name, self.description)
        return Device(**told)


class HostBody(_Strict):
    """The host of a machine that is asked about."""

    total_bytes: Bytes | None = None
    available_bytes: Bytes | None = None
    physical_cores: int | None = Field(None, ge=1, le=1 << 16)

    @field_validator("available_bytes")
    @classmethod
    def _within_total(cls, available_bytes: int | None, info: ValidationInfo) -> int | None:
        return None if available_bytes is None else _within(available_bytes, info.data.get("total_bytes"))


class MachineBody(_Strict):
    """A machine that a placement is judged against, instead of this one."""

    devices: list[DeviceBody] = Field([], max_length=_DEVICES_MOST)
    host: HostBody = HostBody()

    @field_validator("devices")
    @classmethod
    def _each_once(cls, devices: list[DeviceBody]) -> list[DeviceBody]:
        names = [device.name for device in devices]
        if twins := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ValueError(f"more than one device is named {', '.join(twins)}")
        return devices

    def value(self) -> Machine:
        """The domain value."""
        return Machine(tuple(device.value() for device in self.devices), Host(**self.host.model_dump()))


def _within(n_bytes: int, total_bytes: int | None) -> int:
    if total_bytes is not None and n_bytes > total_bytes:
        raise ValueError(f"more than total_bytes, which is {total_bytes}")
    return n_bytes
