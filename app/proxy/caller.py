"""Who sends a request, as far as the relay has to know: whoever checks keys puts it into the scope."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

_SCOPE_NAME = "paceline.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` is None where no key was asked for, `profiles` where every profile may be used."""

    name: str | None = None
    profiles: frozenset[str] | None = None

    def may_use(self, profile_id: str) -> bool:
        """Whether requests for this profile are served."""
        return self.profiles is None or profile_id in self.profiles


ANYONE = Caller()


def with_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Let the relay know."""
    scope[_SCOPE_NAME] = caller


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Who sent the request of this scope."""
    caller: Caller = scope.get(_SCOPE_NAME, ANYONE)
    return caller
