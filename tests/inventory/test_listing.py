"""How often the engine is asked for its devices, and what of it may not be asked."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fixtures.cards import GIB, listed

from app.inventory.devices import Device
from app.inventory.listing import DeviceListing

RADEON = listed("Vulkan0", "AMD Radeon RX 7900 XTX", 24, 23)
REMOTE = listed("RPC0", "127.0.0.1:50052", 8, 7)
DEADLINE_SECONDS = 30


@dataclass
class Engine:
    """Lists what a test says; RPC devices only on demand."""

    probed: Sequence[Device] = (RADEON,)
    fresh: Sequence[Device] = (RADEON,)
    in_use: bool = False
    seconds: float = 0.0
    asked: list[tuple[Mapping[str, str], bool]] = field(default_factory=list)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def listing(self) -> DeviceListing:
        async def known_devices() -> Sequence[Device]:
            return self.probed

        async def list_devices(env: Mapping[str, str], *, with_rpc: bool) -> Sequence[Device]:
            self.asked.append((env, with_rpc))
            self.is_asked.set()
            await asyncio.wait_for(self.may_answer.wait(), DEADLINE_SECONDS)
            return [device for device in self.fresh if with_rpc or not device.name.startswith("RPC")]

        self.may_answer.set()
        return DeviceListing(
            known_devices=known_devices, list_devices=list_devices, is_in_use=lambda: self.in_use,
            clock=lambda: self.seconds,
        )  # fmt: skip


async def test_a_list_serves_all_who_ask_for_some_seconds() -> None:
    engine = Engine(fresh=[replace(RADEON, free_bytes=7 * GIB)])
    listing = engine.listing()
    lists = await asyncio.gather(*(listing.fresh({}) for _ in range(3)))
    assert [devices[0].free_bytes for devices in lists] == [7 * GIB] * 3
    engine.seconds = 3.0
    await listing.fresh({})
    assert engine.asked == [({}, True)]
    engine.seconds = 3.1
    engine.fresh = [replace(RADEON, free_bytes=9 * GIB)]
    assert (await listing.fresh({}))[0].free_bytes == 9 * GIB
    assert len(engine.asked) == 2


async def test_variables_have_lists_of_their_own() -> None:
    engine = Engine()
    listing = engine.listing()
    one, other = {"GGML_VK_VISIBLE_DEVICES": "0"}, {"GGML_VK_VISIBLE_DEVICES": "1"}
    for env in (one, other, one, other):
        await listing.fresh(env)
    assert engine.asked == [(one, True), (other, True)]


async def test_a_list_from_before_a_change_is_not_used_again() -> None:
    engine = Engine()
    listing = engine.listing()
    await listing.fresh({})
    listing.forget()
    engine.is_asked.clear()
    engine.may_answer.clear()
    asking = asyncio.create_task(listing.fresh({}))
    await asyncio.wait_for(engine.is_asked.wait(), DEADLINE_SECONDS)
    # It changes while the engine is being asked.
    listing.forget()
    engine.may_answer.set()
    await asking
    await listing.fresh({})
    await listing.fresh({})
    assert len(engine.asked) == 3


async def test_rpc_devices_are_left_alone_while_an_engine_lives() -> None:
    at_rest = replace(REMOTE, free_bytes=6 * GIB)
    engine = Engine(probed=[RADEON, REMOTE], fresh=[RADEON, at_rest])
    listing = engine.listing()
    assert await listing.known() == [RADEON, REMOTE]
    await listing.fresh({})
    engine.in_use = True
    listing.forget()
    engine.fresh = [replace(RADEON, free_bytes=GIB), replace(REMOTE, free_bytes=1)]
    # What was last seen at rest, and said to be so.
    stale = replace(at_rest, is_stale=True)
    assert await listing.known() == [RADEON, stale]
    assert await listing.fresh({}) == [replace(RADEON, free_bytes=GIB), stale]
    assert engine.asked == [({}, True), ({}, False)]
    engine.in_use = False
    listing.forget()
    assert await listing.fresh({}) == engine.fresh


async def test_an_rpc_device_that_was_only_seen_when_the_engine_was_probed() -> None:
    engine = Engine(probed=[REMOTE], in_use=True)
    assert await engine.listing().known() == [replace(REMOTE, is_stale=True)]
    assert engine.asked == []
