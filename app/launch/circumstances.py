"""What a launch is judged against: where files may lie, what there is, what else runs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.inventory.devices import Machine
from app.inventory.engine import EngineFacts
from app.launch.returning import with_returning
from app.placement.calibration import Measured
from app.profiles.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class OtherLaunches:
    """What instances do to the memory a launch of one profile would meet, in bytes by device (the host is `host`).

    `reserved` is promised to launches whose bytes no driver shows yet; `returning` is held by an earlier life of the
    profile itself, which ends before the launch. With `holds_rpc` an instance of another profile uses the RPC servers,
    with `own_rpc` one of this: they speak with one client at a time.
    """

    reserved: Mapping[str, int]
    returning: Mapping[str, int]
    holds_rpc: bool = False
    own_rpc: bool = False


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
    variables would meet on this machine now; `others` what other launches take; `measured` what an earlier launch of a
    profile, revision, build and set of devices took. `margin_bytes` stays free on each device where a profile says
    nothing.
    """

    model_dirs: Sequence[Path]
    rpc: Sequence[str]
    margin_bytes: int
    claims: Callable[[LaunchProfile], Mapping[str, Sequence[str]]]
    machine: Callable[[Mapping[str, str]], Awaitable[Machine]]
    others: Callable[[str], OtherLaunches]
    measured: Callable[[str, int, str, str], Measured]

    async def meet(self, profile: LaunchProfile, engine: EngineFacts, elsewhere: Machine | None) -> Met:
        """What a launch of this profile meets here and now, or on a machine `elsewhere`, where nothing of ours runs."""
        if elsewhere is not None:
            return Met(elsewhere, engine.elsewhere(elsewhere.devices), OtherLaunches({}, {}))
        others = self.others(profile.id)
        machine = with_returning(await self.machine(profile.env), others.returning)
        return Met(machine, replace(engine, devices=machine.devices), others)
