"""Starts that are asked for and not made yet. A stop by hand withdraws them, and so does the end of the service."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.errors import InstanceFailed, LaunchRefused, PacelineError, ProfileNotFound, ProfileNotRunning
from app.events import Event
from app.findings import Severity
from app.instances.facts import StartNotBegun, StartRefused

_STOPPING = "the service is stopping and starts nothing new"


class Wish:
    """One start on its way: through a pause, a queue, the end of an earlier life, a check."""

    def __init__(self, profile_id: str) -> None:
        self.profile_id = profile_id
        self._withdrawn: str | None = None

    def withdraw(self, why: str) -> None:
        """Nobody wants it any more."""
        self._withdrawn = self._withdrawn or why

    def demand(self) -> None:
        """Raises ProfileNotRunning where it has been withdrawn."""
        if self._withdrawn is not None:
            raise ProfileNotRunning(self._withdrawn, profile=self.profile_id)


class Wishes:
    """Those that are open. Whoever withdraws them wakes those who wait. What came to no life is told to `publish`."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self._open: dict[str, set[Wish]] = {}
        self.is_closed = False

    @contextmanager
    def wish(self, profile_id: str) -> Iterator[Wish]:
        """For the time from the asking to the life, or to giving up.

        Raises InstanceFailed where the system itself was in the way.
        """
        wish = Wish(profile_id)
        if self.is_closed:
            wish.withdraw(_STOPPING)
        self._open.setdefault(profile_id, set()).add(wish)
        try:
            yield wish
        except (ProfileNotRunning, ProfileNotFound, InstanceFailed):
            # Withdrawn, gone, or held back after an earlier failure: nothing was tried.
            raise
        except LaunchRefused as refused:
            errors = [found.rule for found in refused.report.findings if found.severity is Severity.ERROR]
            self._publish(StartRefused(profile_id, errors[0]))
            raise
        except OSError as failure:
            # No descriptors left, a folder that went: not the client's doing, nor the end of its connection.
            self._publish(StartNotBegun(profile_id, "engine-not-started"))
            raise InstanceFailed(
                f"profile {profile_id!r} could not be started: {failure}", reason="engine-not-started", last_lines=[]
            ) from failure
        except Exception as failure:
            code = failure.code if isinstance(failure, PacelineError) else PacelineError.code
            self._publish(StartNotBegun(profile_id, code))
            raise
        finally:
            self._open[profile_id].discard(wish)
            if not self._open[profile_id]:
                del self._open[profile_id]

    def is_open(self, profile_id: str) -> bool:
        """Whether a start of the profile is on its way."""
        return profile_id in self._open

    def withdraw(self, profile_id: str) -> int:
        """Somebody has stopped the profile; how many starts were on their way."""
        wishes = self._open.get(profile_id, set())
        for wish in wishes:
            wish.withdraw(f"profile {profile_id!r} was stopped before it was ready")
        return len(wishes)

    def close(self) -> None:
        """The service stops: none of them, and none that comes."""
        self.is_closed = True
        for wishes in self._open.values():
            for wish in wishes:
                wish.withdraw(_STOPPING)
