"""What every exchange is given."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from app.errors import PacelineError
from app.events import Event
from app.instances.lease import Lease
from app.profiles.profile import LaunchProfile
from app.proxy.asgi import Answer
from app.proxy.auto import Candidate
from app.proxy.endpoints import Dialect
from app.proxy.upstream import Upstreams


@dataclass(frozen=True, slots=True)
class ExchangeNeeds:
    """What every exchange is given by the relay; its constructor says what each of them is.

    `not_understood` are the instances of whose streams no answers are put together any more.
    """

    names: Callable[[], Mapping[str, str]]
    profile: Callable[[str], LaunchProfile]
    candidates: Callable[[Collection[str]], Sequence[Candidate]]
    lease: Callable[[str, bool], Lease]
    lease_when_ready: Callable[[str, str | None], Awaitable[Lease]]
    publish: Callable[[Event], None]
    render_error: Callable[[PacelineError, Dialect], Answer]
    upstreams: Upstreams
    max_body_bytes: int
    sign_of_life_seconds: float | None
    not_understood: set[int] = field(default_factory=set)
