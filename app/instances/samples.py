"""What servers and devices were seen to do over the last minutes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import dropwhile
from typing import Protocol, TypeVar

from app.errors import PacelineError
from app.instances.evidence import DeviceSample, ProcessSample
from app.instances.looks import ProcessLook
from app.instances.state import InstanceStateChanged
from app.inventory.device_match import Unit, match_devices
from app.inventory.devices import Device
from app.inventory.nvml_snapshot import NvmlSnapshot, PcieTraffic, known

_log = logging.getLogger(__name__)
_KEPT_SECONDS = 600.0
_INTERVAL_SECONDS = 1.0
# Where there is no driver, or it is silent.
_SILENT_SECONDS = 30.0
# PCIe throughput takes the driver 40 ms for each card.
_TRAFFIC_SECONDS = 15.0
# A driver with many cards can be slow to answer: asking it takes no larger share of the time than this.
_ASKING_SHARE = 0.01
_LONGEST_PAUSE_SECONDS = 10.0


class _Sample(Protocol):
    @property
    def at_seconds(self) -> float: ...


S = TypeVar("S", bound=_Sample)


class Sampler:
    """Looks at every living server and every device each `interval_seconds`, and keeps `kept_seconds` of it.

    A driver that answers slowly is asked less often, down to each ten seconds.

    `lives` gives the process ids by instance id of those whose process lives; while there is none, nothing is looked
    at. `devices` are the engine's, `read_nvml` is a reader that has a deadline of its own, and `environment` what
    every engine inherits: both decide which device is which card. `read_traffic` reads PCIe throughput as well, and is
    used instead each `traffic_seconds`. Times are of `clock`.
    """

    def __init__(
        self,
        *,
        lives: Callable[[], Mapping[int, int]],
        devices: Callable[[], Awaitable[Sequence[Device]]],
        read_nvml: Callable[[], Awaitable[NvmlSnapshot]],
        environment: Mapping[str, str],
        read_traffic: Callable[[], Awaitable[NvmlSnapshot]] | None = None,
        traffic_seconds: float = _TRAFFIC_SECONDS,
        interval_seconds: float = _INTERVAL_SECONDS,
        silent_seconds: float = _SILENT_SECONDS,
        kept_seconds: float = _KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lives = lives
        self._engine_devices = devices
        self._read_nvml = read_nvml
        self._environment = environment
        self._read_traffic = read_traffic
        self._traffic_seconds = traffic_seconds
        self._interval_seconds = interval_seconds
        self._silent_seconds = silent_seconds
        self._kept_seconds = kept_seconds
        self._clock = clock
        self._looks: dict[int, ProcessLook] = {}
        self._processes: dict[int, deque[ProcessSample]] = {}
        self._devices: dict[str, deque[DeviceSample]] = {}
        self._newest: Mapping[str, DeviceSample] = {}
        self._traffic: Mapping[str, PcieTraffic | None] = {}
        self._traffic_at_seconds = float("-inf")
        self._has_life = asyncio.Event()

    # What others read.

    def processes(self, instance_id: int) -> Sequence[ProcessSample]:
        """The looks of the last minutes at a server, oldest first; also shortly after its end."""
        return self._recent(self._processes.get(instance_id, ()))

    def devices(self) -> Mapping[str, Sequence[DeviceSample]]:
        """The looks of the last minutes at each device that the driver tells of, oldest first."""
        recent = {name: self._recent(ring) for name, ring in self._devices.items()}
        return {name: samples for name, samples in recent.items() if samples}

    def newest(self) -> Mapping[str, DeviceSample]:
        """The newest look at each device that the driver tells of, however old; may be asked for on any thread."""
        return self._newest

    # The life.

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """An instance has begun, or ended."""
        if not event.state.is_terminal:
            self._has_life.set()

    async def run(self) -> None:
        """Look until cancelled."""
        await asyncio.gather(self._again_and_again(self.look_at_processes), self._again_and_again(self.look_at_devices))

    async def _again_and_again(self, look: Callable[[], Awaitable[float]]) -> None:
        """A card that answers late must not hold up the processes: each has a loop of its own."""
        trouble = ""
        while True:
            while not self._lives():
                self._has_life.clear()
                await self._has_life.wait()
            try:
                pause_seconds = await look()
            except Exception as failure:
                pause_seconds = self._silent_seconds
                if (said := repr(failure)) != trouble:
                    _log.exception("looking at servers or devices failed; it is tried again")
                    trouble = said
            await asyncio.sleep(pause_seconds)

    async def look_at_processes(self) -> float:
        """One look at every server; how long to wait for the next."""
        lives = dict(self._lives())
        self._looks = {
            identifier: self._looks.get(identifier) or ProcessLook(pid, clock=self._clock)
            for identifier, pid in lives.items()
        }
        looks = self._looks
        # Reading of a process that is being ended can block for a while.
        samples = await asyncio.to_thread(lambda: {identifier: look.take() for identifier, look in looks.items()})
        for identifier, sample in samples.items():
            self._keep(self._processes.setdefault(identifier, deque()), sample)
        for identifier in [known_id for known_id in self._processes if not self.processes(known_id)]:
            del self._processes[identifier]
        return self._interval_seconds

    async def look_at_devices(self) -> float:
        """One look at every device; how long to wait for the next."""
        try:
            devices = await self._engine_devices()
        except PacelineError:
            return self._silent_seconds
        began = time.monotonic()
        with_traffic = self._read_traffic if self._clock() - self._traffic_at_seconds >= self._traffic_seconds else None
        nvml = await (with_traffic or self._read_nvml)()
        took_seconds = time.monotonic() - began
        units = match_devices(devices, nvml, self._environment).units
        if with_traffic is not None:
            self._traffic = {name: known(unit.card.traffic) for name, unit in units.items()}
            self._traffic_at_seconds = self._clock()
        looks = {name: _device_sample(unit, self._clock(), self._traffic.get(name)) for name, unit in units.items()}
        self._newest = looks
        for name, sample in looks.items():
            self._keep(self._devices.setdefault(name, deque()), sample)
        if not units:
            return self._silent_seconds
        if with_traffic is not None:
            return self._interval_seconds
        return max(self._interval_seconds, min(took_seconds / _ASKING_SHARE, _LONGEST_PAUSE_SECONDS))

    def _keep(self, ring: deque[S], sample: S) -> None:
        ring.append(sample)
        while ring[0].at_seconds < sample.at_seconds - self._kept_seconds:
            ring.popleft()

    def _recent(self, ring: Sequence[S] | deque[S]) -> Sequence[S]:
        since = self._clock() - self._kept_seconds
        return list(dropwhile(lambda sample: sample.at_seconds < since, ring))


def _device_sample(unit: Unit, now_seconds: float, traffic: PcieTraffic | None) -> DeviceSample:
    """What the driver said. Load, power and heat of a slice are its card's; its memory is its own."""
    utilisation, memory = known(unit.card.utilisation), known(unit.memory)
    return DeviceSample(
        at_seconds=now_seconds,
        busy_rate=utilisation.busy_rate if utilisation else None,
        free_bytes=memory.free_bytes if memory else None,
        total_bytes=memory.total_bytes if memory else None,
        power_watts=known(unit.card.power_watts),
        temperature_celsius=known(unit.card.temperature_celsius),
        throttle_reasons=known(unit.card.throttle_reasons) or (),
        sent_bytes_rate=traffic.sent_bytes_rate if traffic else None,
        received_bytes_rate=traffic.received_bytes_rate if traffic else None,
    )
