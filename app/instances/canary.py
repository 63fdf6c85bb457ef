"""Is a server that says it is healthy alive? Found out by a small completion, when requests give reason to ask."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from app.instances.holds import Holds
from app.llama_server.endpoints import EngineClient
from app.llama_server.log_lines import Failure


@dataclass(frozen=True, slots=True)
class CanaryPolicy:
    """`failures_most` failed requests in a row, or silence on one for `silence_seconds`, are a reason.

    A probe has `probe_seconds` to find a sign of life; the second without one is the end.
    """

    failures_most: int = 3
    silence_seconds: float = 120.0
    probe_seconds: float = 120.0

    @property
    def look_seconds(self) -> float:
        """Between two looks at the holds."""
        return min(5.0, self.silence_seconds / 4)


# Other requests that leave are noticed by the engine only in quiet seconds: it is not to be asked more often.
_SLOTS_PAUSE_SECONDS = 2.0


async def until_unresponsive(holds: Holds, client: Callable[[], EngineClient], policy: CanaryPolicy) -> Failure:
    """Watch an instance; returns when two probes in a row have found no sign of life."""
    calm_seconds = 0.0
    while True:
        await asyncio.sleep(policy.look_seconds)
        waited_seconds = holds.longest_silence_seconds
        calm_seconds = min(calm_seconds, waited_seconds)
        failures = holds.failures_in_a_row
        if failures < policy.failures_most and waited_seconds - calm_seconds < policy.silence_seconds:
            continue
        reason = (
            f"{failures} requests in a row failed"
            if failures >= policy.failures_most
            else f"it has been silent on a request for {waited_seconds:.0f} s"
        )
        # On a slow machine one batch of a prompt takes minutes: both probes together look for its end.
        seen: dict[int, Any] = {}
        if await shows_life(holds, client, policy.probe_seconds, seen) or await shows_life(
            holds, client, policy.probe_seconds, seen
        ):
            # A long prompt, or a passing trouble: the next look of this kind comes after as long again.
            calm_seconds = holds.longest_silence_seconds
            holds.failures_in_a_row = 0
            continue
        return Failure(
            "unresponsive",
            f"It stopped answering: {reason}, no request in its slots came on, and two test completions of one token "
            f"came to nothing within {policy.probe_seconds:g} s each, while its health check may still say that all is "
            "well.",
        )


async def shows_life(holds: Holds, client: Callable[[], EngineClient], seconds: float, seen: dict[int, Any]) -> bool:
    """Whether within that time it completes a token, its slots show progress, or an answer comes on.

    `seen` has the requests in its slots as they were first seen, and gets what is new.
    """
    async with client() as engine:
        signs = [
            asyncio.create_task(_completes(engine, seconds)),
            asyncio.create_task(_slots_move(engine, seen, min(_SLOTS_PAUSE_SECONDS, seconds / 4))),
            asyncio.create_task(_comes_on(holds)),
        ]
        pending: set[asyncio.Task[bool]] = set(signs)
        try:
            async with asyncio.timeout(seconds):
                while pending:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    if any(sign.result() for sign in done):
                        return True
        except TimeoutError:
            return False
        finally:
            for sign in signs:
                sign.cancel()
            await asyncio.gather(*signs, return_exceptions=True)
    return False


async def _completes(engine: EngineClient, seconds: float) -> bool:
    try:
        return await engine.completes_a_token(seconds)
    except (httpx.HTTPError, ValueError):
        return False


async def _slots_move(engine: EngineClient, seen: dict[int, Any], pause_seconds: float) -> bool:
    """Until a request has come on since it was first seen."""
    while True:
        try:
            running = await engine.running_slots()
        except (httpx.HTTPError, ValueError):
            running = {}
        if any(seen.setdefault(task, counters) != counters for task, counters in running.items()):
            return True
        await asyncio.sleep(pause_seconds)


async def _comes_on(holds: Holds) -> bool:
    await holds.next_sign()
    return True
