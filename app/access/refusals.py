"""What is refused: counted by its reason, slowed for those who try keys, and recorded within a bound."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, ip_address, ip_network

from app.errors import AccessDenied

_log = logging.getLogger(__name__)

_FREE_FAILURES = 5
_FIRST_DELAY_SECONDS = 0.25
_LONGEST_DELAY_SECONDS = 4.0
_FORGET_SECONDS = 600.0
_ADDRESSES_MOST = 1024
# So many rows a minute tell what goes on; more would let anybody who reaches the port fill the table.
_ROWS_A_MINUTE = 60
# Who has one IPv6 address has as a rule all that begin so.
_IPV6_OWN_BITS = 64


class Refusal(StrEnum):
    """Why somebody was not let in."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    NOT_PERMITTED = "not-permitted"
    FOREIGN_ORIGIN = "foreign-origin"


@dataclass(slots=True)
class _Failures:
    count: int
    last: float


class Refusals:
    """Counts refusals, and says how long each is held back. One for the service.

    The first few wrong keys of an address are answered at once, then later and later, up to a few seconds. Nobody
    with a right key waits, whatever came from the same address. `clock` answers seconds and never steps back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, addresses_most: int = _ADDRESSES_MOST) -> None:
        self._clock = clock
        self._addresses_most = addresses_most
        self._counts = dict.fromkeys(Refusal, 0)
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._rows_left = float(_ROWS_A_MINUTE)
        self._rows_left_at = clock()

    def counts(self) -> Mapping[str, int]:
        """How many there were of each reason."""
        return {reason.value: count for reason, count in self._counts.items()}

    def note(self, refusal: AccessDenied, address: str) -> float:
        """Count it. Returns the seconds to wait before it is said."""
        reason = Refusal(refusal.details["reason"])
        self._counts[reason] += 1
        return self._delay_seconds(_household(address)) if reason is Refusal.UNKNOWN else 0.0

    def may_leave_row(self, refusal: AccessDenied) -> bool:
        """Whether this one is recorded. Those of a right key all are; of the rest so many a minute from all addresses
        together, and those beyond are only counted.
        """
        if Refusal(refusal.details["reason"]) is Refusal.NOT_PERMITTED:
            return True
        now = self._clock()
        gained = (now - self._rows_left_at) * _ROWS_A_MINUTE / 60.0
        self._rows_left, self._rows_left_at = min(self._rows_left + gained, _ROWS_A_MINUTE), now
        if self._rows_left < 1:
            return False
        self._rows_left -= 1
        return True

    def _delay_seconds(self, address: str) -> float:
        now = self._clock()
        failures = self._failures.setdefault(address, _Failures(0, now))
        self._failures.move_to_end(address)
        if now - failures.last > _FORGET_SECONDS:
            failures.count = 0
        failures.count, failures.last = failures.count + 1, now
        if len(self._failures) > self._addresses_most:
            self._failures.popitem(last=False)
        if failures.count == _FREE_FAILURES + 1:
            _log.warning("%s has shown %d wrong keys: it waits for further answers", address, failures.count)
        return delay_seconds(failures.count)


def delay_seconds(failures: int) -> float:
    """How long the answer to an address waits after so many wrong keys."""
    beyond = failures - _FREE_FAILURES
    if beyond <= 0:
        return 0.0
    # Bounded before it is a power: counts may become large.
    return min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2.0 ** min(beyond - 1, 16))


def _household(address: str) -> str:
    try:
        known = ip_address(address)
    except ValueError:
        return address
    if not isinstance(known, IPv6Address):
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ip_network((int(known), _IPV6_OWN_BITS), strict=False))
