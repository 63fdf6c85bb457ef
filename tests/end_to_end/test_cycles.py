"""Two hundred starts and stops with requests in flight: nothing of them is left, and every step was a legal one."""

import asyncio
import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from fixtures.tiny_models import TinyModels
from fixtures.told_events import told_until
from service import InFlight, Service, client_of, completion, eventually, running_service, settings_for, short_folder

from app.instances.state import InstanceState

CYCLES = 200
# Two cores, and each of them has a profile of its own.
AT_ONCE = 4


@dataclass(frozen=True)
class Left:
    """What a process has open. Threads come and go with the pools of the service, so they have a bound instead."""

    children: int
    descriptors: int
    sockets: int
    tasks: int

    @classmethod
    def now(cls, runtime_dir: Path) -> "Left":
        gc.collect()
        tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
        return cls(
            children=len(psutil.Process().children(recursive=True)),
            descriptors=psutil.Process().num_fds(),
            sockets=len(list(runtime_dir.rglob("*.sock"))),
            tasks=len(tasks),
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def cycle(service: Service, profile: str, number: int) -> None:
    """One life: cut in its load, in a request, or ended after it, by turns."""
    if number % 4 == 0:
        request = InFlight(service, completion(profile))
        eventually(lambda: service.state(profile) in ("loading", "ready") or None)
        service.stop(profile, drain_seconds=0)
        request.outcome()
        return
    service.start(profile)
    request = InFlight(service, completion(profile, stream=True, max_tokens=2000 if number % 2 else 32))
    assert request.has_begun()
    service.stop(profile, drain_seconds=0 if number % 2 else 10)
    request.outcome()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_hundred_lives_leave_nothing_behind(folder: Path, tiny: TinyModels) -> None:
    """Earns that a service which runs for months neither fills its tables nor leaves engines that nobody knows."""
    settings = settings_for(folder, tiny.dense_target.parent, runtime_dir=folder / "run")
    with running_service(settings) as service:
        profiles = [
            service.add({"id": f"cycle-{number}", "target": {"path": "dense.gguf"}, "context": {"threads": 1}})
            for number in range(AT_ONCE)
        ]

        def cycles(profile: str, count: int) -> None:
            with client_of(service.base_url) as own:
                for number in range(count):
                    cycle(own, profile, number)

        def go_round(count: int) -> None:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(cycles, profiles, [count // AT_ONCE] * AT_ONCE))

        go_round(4 * AT_ONCE)
        before = at_rest(service, settings.runtime_dir)
        go_round(CYCLES)
        assert eventually(lambda: at_rest(service, settings.runtime_dir) == before or None), before
        demand_legal_steps(service)


def at_rest(service: Service, runtime_dir: Path) -> Left:
    # Its connection may have been closed meanwhile: it is open again then.
    assert service.client.get("/health").status_code == 200
    return Left.now(runtime_dir)


def demand_legal_steps(service: Service) -> None:
    seen: Counter[str] = Counter()
    wanted = len(service.client.get("/instances", params={"limit": 1000}).json()["items"])

    def is_last(event: object) -> bool:
        assert isinstance(event, dict)
        seen[event["state"]] += 1
        return seen["stopped"] + seen["failed"] == wanted

    steps: dict[str, list[InstanceState]] = defaultdict(list)
    for event in told_until(service, "instance.state", is_last):
        steps[event["id"]].append(InstanceState(event["state"]))
    for states in steps.values():
        assert states[0] is InstanceState.STARTING
        assert all(state.may_become(following) for state, following in pairwise(states)), states
        assert states[-1].is_terminal
