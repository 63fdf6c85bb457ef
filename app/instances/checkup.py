"""Looks at what runs, again and again, and on demand: what is known of a life becomes evidence, and that findings."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from app.findings import Finding
from app.instances.diagnosis import diagnose
from app.instances.evidence import Baseline, Evidence
from app.instances.instance import Instance
from app.instances.roster import Roster
from app.instances.samples import Sampler
from app.instances.state import InstanceState
from app.instances.tallies import Tallies
from app.launch.report import Launch

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 15.0


class Checkup:
    """`baseline` finds what was recorded of the same launch without speculation; `physical_cores` are the host's."""

    def __init__(
        self,
        roster: Roster,
        sampler: Sampler,
        tallies: Tallies,
        *,
        baseline: Callable[[Launch], Awaitable[Baseline | None]],
        physical_cores: Callable[[], int | None],
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._roster = roster
        self._sampler = sampler
        self._tallies = tallies
        self._baseline = baseline
        self._physical_cores = physical_cores
        self._pause_seconds = pause_seconds

    async def run(self) -> None:
        """Diagnose what is ready, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_seconds)
            for life in self._roster.lives():
                try:
                    await self.findings(life)
                except Exception:
                    _log.exception("the diagnosis of profile %s failed", life.profile_id)

    async def findings(self, life: Instance) -> Sequence[Finding]:
        """What is wrong with an instance now; what it is told decides its degradations. Nothing before it is ready."""
        if life.state is not InstanceState.READY:
            return life.story.findings
        found = diagnose(await self._evidence(life))
        if life.state is InstanceState.READY:
            life.found(found)
        return found

    async def _evidence(self, life: Instance) -> Evidence:
        launch = life.launch
        # A load keeps processor and devices busy too: only what was seen while it served counts.
        since_seconds = asyncio.get_running_loop().time() - (life.story.ready_seconds or 0.0)
        devices = {
            name: [sample for sample in samples if sample.at_seconds >= since_seconds]
            for name, samples in self._sampler.devices().items()
        }
        return replace(
            life.story.evidence(),
            processes=[each for each in self._sampler.processes(life.id) if each.at_seconds >= since_seconds],
            devices=devices,
            tally=self._tallies.of(life.id),
            baseline=await self._baseline(launch) if launch.profile.speculation.methods else None,
            physical_cores=self._physical_cores(),
        )
