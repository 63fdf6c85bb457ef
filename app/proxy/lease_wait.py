"""Waiting for a profile to be ready, with signs of life for the client meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from app.instances.lease import Lease


class LeaseWait:
    """One request's wait for its lease. `cancel` ends it from outside."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Awaitable[Lease]) -> None:
        self._lease = asyncio.ensure_future(lease)

    def cancel(self) -> None:
        """Give up waiting."""
        self._lease.cancel()

    async def lease(self, sign_seconds: float | None, give_sign: Callable[[], Awaitable[None]]) -> Lease | None:
        """The lease, or None where the wait was cancelled; `give_sign` is called each `sign_seconds` until then.

        Raises what the wait ends with. A lease that comes as the caller is cancelled is given back.
        """
        is_taken = False
        try:
            while not (await asyncio.wait({self._lease}, timeout=sign_seconds))[0]:
                await give_sign()
            if self._lease.cancelled():
                return None
            lease = self._lease.result()
            is_taken = True
            return lease
        finally:
            if not self._lease.done():
                self._lease.cancel()
            elif not is_taken and not self._lease.cancelled() and self._lease.exception() is None:
                self._lease.result().release()
