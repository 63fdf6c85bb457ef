"""Looks at real small processes and at written snapshots of a driver."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from fixtures.cards import GIB, UNTOLD, card, driver, listed

from app.errors import EngineNotFound
from app.instances.evidence import ProcessSample
from app.instances.looks import ProcessLook, session_members
from app.instances.samples import Sampler
from app.instances.state import InstanceState, InstanceStateChanged
from app.inventory.devices import Device
from app.inventory.nvml_snapshot import NvmlSnapshot, PcieTraffic, Utilisation

DEADLINE_SECONDS = 20
BUSY = "print('up', flush=True)\nwhile True: pass"
STILL = "import signal; print('up', flush=True); signal.pause()"


async def until(is_so: Callable[[], object]) -> None:
    """Ask again and again: nobody tells."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@contextmanager
def process(code: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that leads a session, as servers do, and has said that it is up."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child
        finally:
            child.kill()


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Scene:
    """What a sampler sees, to be changed while it looks."""

    lives: dict[int, int] = field(default_factory=dict)
    snapshot: NvmlSnapshot = field(default_factory=lambda: NvmlSnapshot(problem="no library"))
    devices: Sequence[Device] = ()
    nvml_reads: int = 0
    life_asked: int = 0
    clock: Clock = field(default_factory=Clock)

    def living(self) -> Mapping[int, int]:
        self.life_asked += 1
        return self.lives

    async def engine_devices(self) -> Sequence[Device]:
        if not self.devices:
            raise EngineNotFound("no engine")
        return self.devices

    async def read_nvml(self) -> NvmlSnapshot:
        self.nvml_reads += 1
        return self.snapshot

    def sampler(self, **more: float) -> Sampler:
        return Sampler(
            lives=self.living, devices=self.engine_devices, read_nvml=self.read_nvml,
            environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, clock=self.clock, **more,
        )  # fmt: skip


@asynccontextmanager
async def running(sampler: Sampler) -> AsyncIterator[None]:
    task = asyncio.create_task(sampler.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


async def test_busy_cores_are_since_the_look_before() -> None:
    clock = Clock()
    with process(BUSY) as child:
        look = ProcessLook(child.pid, clock=clock)
        assert look.take().busy_cores is None
        computed = cpu_seconds(child.pid)
        await until(lambda: cpu_seconds(child.pid) >= computed + 0.2)
        clock.now += 0.5
        busy = look.take().busy_cores
        assert busy is not None
        assert busy >= 0.35
        clock.now += 1000
        assert (look.take().busy_cores or 0) < 0.1


def test_what_a_process_holds_and_has_read() -> None:
    code = (
        "x = b'x' * (32 << 20); open('/proc/self/maps').read(); import signal; print('up', flush=True); signal.pause()"
    )
    with process(STILL) as small, process(code) as large:
        looks = [ProcessLook(child.pid).take() for child in (small, large)]
        held = [look.resident_bytes or 0 for look in looks]
        assert 30 << 20 < held[1] - held[0] < 40 << 20
        cached = ProcessLook(large.pid, with_cached=True).take().read_bytes
        assert cached is not None
        assert cached > (looks[1].read_bytes or 0)


async def test_what_a_wrapper_started_counts_too() -> None:
    code = f"import subprocess, sys; subprocess.call([sys.executable, '-I', '-S', '-c', {BUSY!r}])"
    clock = Clock()
    with process(code) as wrapper:
        assert len(session_members((wrapper.pid,))[wrapper.pid]) == 2
        look = ProcessLook(wrapper.pid, clock=clock)
        look.take()
        (child,) = session_members((wrapper.pid,))[wrapper.pid] - {wrapper.pid}
        computed = cpu_seconds(child)
        await until(lambda: cpu_seconds(child) >= computed + 0.2)
        clock.now += 0.5
        assert (look.take().busy_cores or 0) >= 0.35
        os.kill(child, signal.SIGKILL)


def test_a_process_that_is_gone_or_a_zombie_is_told_as_nothing() -> None:
    clock = Clock()
    with process(STILL) as child:
        look = ProcessLook(child.pid, clock=clock)
        assert look.take().resident_bytes
        child.kill()
        child.wait()
        assert look.take() == ProcessSample(clock.now, None, None, None)
        assert ProcessLook(child.pid, clock=clock).take() == ProcessSample(clock.now, None, None, None)
    zombie = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessLook(zombie.pid).take().resident_bytes == 0
    zombie.wait()


async def test_devices_are_told_by_the_engines_names() -> None:
    told = card(1, free=9, utilisation=Utilisation(0.5, 0.25), power_watts=300.0, temperature_celsius=61,
                throttle_reasons=("software-power-cap",))  # fmt: skip
    scene = Scene(snapshot=driver(told, card(2)), devices=[listed("CUDA0"), listed("CUDA1"), listed("Vulkan0", "AMD")])
    sampler = scene.sampler()
    assert await sampler.look_at_devices() == 1.0
    assert sampler.devices().keys() == {"CUDA0", "CUDA1"}
    (first,), (second,) = sampler.devices()["CUDA0"], sampler.devices()["CUDA1"]
    assert (first.busy_rate, first.free_bytes, first.total_bytes) == (0.5, 9 * GIB, 24 * GIB)
    assert (first.power_watts, first.temperature_celsius) == (300.0, 61)
    assert first.throttle_reasons == ("software-power-cap",)
    assert (second.busy_rate, second.power_watts, second.throttle_reasons) == (None, None, ())


async def test_a_card_without_memory_figures_has_a_look_without_them() -> None:
    scene = Scene(snapshot=driver(card(1, memory=UNTOLD)), devices=[listed("CUDA0")])
    sampler = scene.sampler()
    await sampler.look_at_devices()
    assert [(look.free_bytes, look.total_bytes) for look in sampler.devices()["CUDA0"]] == [(None, None)]


async def test_where_nobody_tells_the_devices_are_looked_at_seldom() -> None:
    scene = Scene(devices=[listed("CUDA0")])
    sampler = scene.sampler(silent_seconds=30)
    assert await sampler.look_at_devices() == 30
    scene.devices = ()
    assert await sampler.look_at_devices() == 30
    assert sampler.devices() == {}


async def test_a_slow_driver_is_asked_less_often() -> None:
    scene = Scene(snapshot=driver(card(1)), devices=[listed("CUDA0")])

    async def slowly() -> NvmlSnapshot:
        await asyncio.sleep(0.05)
        return scene.snapshot

    sampler = Sampler(lives=scene.living, devices=scene.engine_devices, read_nvml=slowly, environment={})
    assert 5 <= await sampler.look_at_devices() <= 10


async def test_ten_minutes_are_kept() -> None:
    with process(STILL) as child:
        scene = Scene({7: child.pid}, driver(card(1)), [listed("CUDA0")])
        sampler = scene.sampler()
        for _ in range(700):
            await sampler.look_at_devices()
            scene.clock.now += 1
        for _ in range(3):
            await sampler.look_at_processes()
            scene.clock.now += 299
        assert len(sampler.devices()) == 0
        assert [look.at_seconds for look in sampler.processes(7)] == [800 + 299, 800 + 598]
        await sampler.look_at_devices()
        assert len(sampler.devices()["CUDA0"]) == 1


async def test_nothing_is_looked_at_while_nothing_lives() -> None:
    with process(STILL) as child:
        scene = Scene({}, driver(card(1)), [listed("CUDA0")])
        sampler = scene.sampler(interval_seconds=0.001)
        async with running(sampler):
            await until(lambda: scene.life_asked == 2)
            sampler.on_instance_state(InstanceStateChanged(7, "p", InstanceState.STARTING))
            # Told, and asked again by both loops: there is no process yet.
            await until(lambda: scene.life_asked == 4)
            assert (scene.nvml_reads, sampler.processes(7)) == (0, [])
            scene.lives[7] = child.pid
            sampler.on_instance_state(InstanceStateChanged(7, "p", InstanceState.LOADING))
            await until(lambda: len(sampler.processes(7)) >= 2 and scene.nvml_reads >= 2)
            del scene.lives[7]
            asked = scene.life_asked
            await until(lambda: scene.life_asked == asked + 2)
            # What was seen of it stays for a while.
            assert len(sampler.processes(7)) >= 2


async def test_a_look_that_fails_is_not_the_last() -> None:
    with process(STILL) as child:
        scene = Scene({7: child.pid}, driver(card(1)), [listed("CUDA0")])

        async def broken() -> NvmlSnapshot:
            scene.nvml_reads += 1
            raise RuntimeError("out of order")

        sampler = Sampler(
            lives=scene.living, devices=scene.engine_devices, read_nvml=broken, environment={}, clock=scene.clock,
            interval_seconds=0.001, silent_seconds=0.001,
        )  # fmt: skip
        async with running(sampler):
            await until(lambda: scene.nvml_reads >= 3 and len(sampler.processes(7)) >= 2)


async def test_traffic_is_asked_for_now_and_then_and_stays_until_the_next_time() -> None:
    rates = iter((PcieTraffic(1, 2), PcieTraffic(3, 4)))
    asked: list[bool] = []

    async def without() -> NvmlSnapshot:
        asked.append(False)
        return driver(card(1))

    async def with_traffic() -> NvmlSnapshot:
        asked.append(True)
        return driver(card(1, traffic=next(rates)))

    scene = Scene({}, driver(card(1)), [listed("CUDA0")])
    sampler = Sampler(
        lives=scene.living, devices=scene.engine_devices, read_nvml=without, read_traffic=with_traffic,
        environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, clock=scene.clock,
    )  # fmt: skip
    assert sampler.newest() == {}
    told = []
    for _ in range(4):
        await sampler.look_at_devices()
        newest = sampler.newest()["CUDA0"]
        assert newest.at_seconds == scene.clock.now
        told.append((newest.sent_bytes_rate, newest.received_bytes_rate))
        scene.clock.now += 8
    assert asked == [True, False, True, False]
    assert told == [(1, 2), (1, 2), (3, 4), (3, 4)]
    assert sampler.devices()["CUDA0"][-1].sent_bytes_rate == 3


async def test_without_a_driver_there_is_no_newest_look() -> None:
    scene = Scene(snapshot=driver(card(1)), devices=[listed("CUDA0")])
    sampler = scene.sampler()
    await sampler.look_at_devices()
    assert sampler.newest()["CUDA0"].sent_bytes_rate is None
    scene.snapshot = NvmlSnapshot(problem="gone")
    await sampler.look_at_devices()
    assert sampler.newest() == {}
