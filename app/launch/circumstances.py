"""What a launch is judged against: where files may lie, what there is, what else runs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.inventory.devices import Machine
from app.inventory.engine import EngineFacts
from app.launch.returning import with_returning
from app.placement.calibration import Measured
from app.profiles.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class OtherLaunches:
    """What instances do to the memory a launch of one profile would meet, in bytes by device (the host is `host`).

    `reserved` is promised to launches whose bytes no driver shows yet; of it, `loading` has by process id what is
    promised to those that load, since a driver shows their memory bit by bit. `returning` is held by an earlier life of
    the profile itself, which ends before the launch. With `holds_rpc` an instance of another profile uses the RPC
    servers, with `own_rpc` one of this, or one that ends for the launch: they speak with one client at a time.
    """

    reserved: Mapping[str, int]
    returning: Mapping[str, int]
    holds_rpc: bool = False
    own_rpc: bool = False
    loading: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def not_seen_on(self, machine: Machine) -> "OtherLaunches":
        """The same with that part of `reserved` left out which this machine shows as taken already."""
        if not self.loading:
            return self
        reserved = dict(self.reserved)
        for device in machine.devices:
            for holder in device.own_holders:
                promised_bytes = self.loading.get(holder.pid, {}).get(device.name, 0)
                if seen_bytes := min(holder.used_bytes or 0, promised_bytes):
                    reserved[device.name] -= seen_bytes
        return replace(self, reserved=reserved, loading={})


@dataclass(frozen=True, slots=True)
class Met:
    """What one launch meets: the machine, the engine as it is there, and what else runs."""

    machine: Machine
    engine: EngineFacts
    others: OtherLaunches


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Asked afresh for each check.

    `claims` answers, for one profile, which other profiles use each of its names; `machine` what a launch with these
    variables would meet on this machine now; `others` what other launches take, some thought of as ended; `measured`
    what an earlier launch of a profile, revision, build and set of devices took. `margin_bytes` stays free on each
    device where a profile says nothing.
    """

    model_dirs: Sequence[Path]
    rpc: Sequence[str]
    margin_bytes: int
    claims: Callable[[LaunchProfile], Mapping[str, Sequence[str]]]
    machine: Callable[[Mapping[str, str]], Awaitable[Machine]]
    others: Callable[[str, frozenset[int]], OtherLaunches]
    measured: Callable[[str, int, str, str], Measured]

    async def meet(
        self,
        profile: LaunchProfile,
        engine: EngineFacts,
        elsewhere: Machine | None,
        gone: frozenset[int] = frozenset(),
    ) -> Met:
        """What a launch of this profile meets here and now, or on a machine `elsewhere`, where nothing of ours runs.

        Instances in `gone` are thought of as ended.
        """
        if elsewhere is not None:
            return Met(elsewhere, engine.elsewhere(elsewhere.devices), OtherLaunches({}, {}))
        others = self.others(profile.id, gone)
        seen = await self.machine(profile.env)
        machine = with_returning(seen, others.returning)
        return Met(machine, replace(engine, devices=machine.devices), others.not_seen_on(seen))
