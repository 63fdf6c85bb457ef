"""Work that is done every hour for as long as the service runs, whatever becomes of it once."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from app import findings
from app.errors import PacelineError
from app.findings import Finding

_log = logging.getLogger(__name__)

# What ends within a minute of its hour need not be added later.
_AFTER_THE_HOUR_SECONDS = 60
_RETRY_SECONDS = 60.0


class Hourly:
    """Does `work` now and a minute after every hour; what fails is logged, and tried again after `retry_seconds`.

    `what` is the work in words that go before "failed". `clock` answers seconds since 1970.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[], Awaitable[object]],
        *,
        clock: Callable[[], float] = time.time,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._what = what
        self._work = work
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._failure: str | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause_seconds = 3600 - self._clock() % 3600 + _AFTER_THE_HOUR_SECONDS
            try:
                await self._work()
            except Exception as failure:  # whatever it is: nobody else would ever try again
                self._note(failure)
                pause_seconds = self._retry_seconds
            else:
                self._failure = None
            await asyncio.sleep(pause_seconds)

    def findings(self) -> Sequence[Finding]:
        """That it failed, until it succeeds."""
        if (failure := self._failure) is None:
            return ()
        found = findings.warning(
            "upkeep-failed",
            f"{self._what} failed: {failure}",
            expected="done every hour",
            observed=f"not done, and tried again after {self._retry_seconds:g} s",
            evidence="the service's log",
        )
        return (found,)

    def _note(self, failure: Exception) -> None:
        is_foreseen = isinstance(failure, PacelineError)
        said = str(failure) if is_foreseen else f"{type(failure).__name__}: {failure}"
        # Where it was not foreseen, and not once for each try.
        trace = None if is_foreseen or said == self._failure else failure
        _log.warning("%s failed, and is tried again: %s", self._what, said, exc_info=trace)
        self._failure = said
