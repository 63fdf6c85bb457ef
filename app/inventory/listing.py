"""The engine's list of devices: as it was when the engine was probed, or asked afresh."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from app.inventory.devices import Device

# Listing starts the engine for a moment, and on a card takes memory of its own meanwhile.
_FRESH_SECONDS: Final = 3.0
_RPC: Final = "RPC"


class ListDevices(Protocol):
    """Asks the engine, under variables of a profile, with its RPC devices or without. Raises EngineError."""

    async def __call__(self, env: Mapping[str, str], *, with_rpc: bool) -> Sequence[Device]:
        """The devices as they are now."""


class DeviceListing:
    """Lists devices, not oftener than it must.

    `known_devices` answers what the engine listed when it was probed. An RPC server serves one client at a time, so
    while an engine of ours lives (`is_in_use`) RPC devices are not asked again: a listing would wait for its end. Their
    figures of before are then given, marked as stale.
    """

    def __init__(
        self,
        *,
        known_devices: Callable[[], Awaitable[Sequence[Device]]],
        list_devices: ListDevices,
        is_in_use: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known_devices = known_devices
        self._list_devices = list_devices
        self._is_in_use = is_in_use
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._listed: dict[tuple[tuple[str, str], ...], tuple[float, Sequence[Device]]] = {}
        self._rpc_at_rest: Mapping[str, Device] = {}
        self._changes = 0

    async def known(self) -> Sequence[Device]:
        """What the engine listed when it was probed. Raises EngineError."""
        devices = await self._known_devices()
        return [self._stale(device) for device in devices] if self._is_in_use() else devices

    async def fresh(self, env: Mapping[str, str]) -> Sequence[Device]:
        """A list not older than a few seconds, under these variables of a profile. Raises EngineError.

        Who asks at the same time shares it.
        """
        key = tuple(sorted(env.items()))
        async with self._one_at_a_time:
            asked_seconds, devices = self._listed.get(key, (float("-inf"), ()))
            if self._clock() - asked_seconds <= _FRESH_SECONDS:
                return devices
            changes = self._changes
            devices = await self._ask(env)
            now_seconds = self._clock()
            recent = {k: entry for k, entry in self._listed.items() if now_seconds - entry[0] <= _FRESH_SECONDS}
            # A change while the engine was being asked may be in its answer or not.
            self._listed = {**recent, key: (now_seconds, devices)} if changes == self._changes else {}
            return devices

    def forget(self) -> None:
        """What was listed is out of date: an instance took memory, or gave it back."""
        self._changes += 1
        self._listed.clear()

    async def _ask(self, env: Mapping[str, str]) -> Sequence[Device]:
        if self._is_in_use():
            local = await self._list_devices(env, with_rpc=False)
            # The engine lists RPC devices last.
            return [*local, *(self._stale(d) for d in await self._known_devices() if d.name.startswith(_RPC))]
        devices = await self._list_devices(env, with_rpc=True)
        self._rpc_at_rest = {device.name: device for device in devices if device.name.startswith(_RPC)}
        return devices

    def _stale(self, device: Device) -> Device:
        if not device.name.startswith(_RPC):
            return device
        return replace(self._rpc_at_rest.get(device.name, device), is_stale=True)
