"""The restart policy at work: how the lives of each profile ended, and the pauses that follow."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from app import findings
from app.errors import InstanceFailed, LaunchRefused, PacelineError
from app.events import Event
from app.findings import Finding, Severity
from app.instances.facts import FindingRaised, ProfileRestarted, RestartCause
from app.instances.instance import Instance
from app.instances.restart import Ending, Following, GiveUp, Hold, Rest, Restart, RestartPolicy, following
from app.llama_server.log_lines import Failure

_log = logging.getLogger(__name__)
# Failed loads lie between crashes and are none of them.
_ENDINGS_FOR_EACH_CRASH = 8


@dataclass(slots=True)
class _Course:
    """What happened to one revision of a profile, and what comes next."""

    revision: int
    endings: deque[Ending]
    next: Following = field(default_factory=Rest)
    until_seconds: float = 0.0
    failure: Failure | None = None
    restart: asyncio.Task[None] | None = None


class Recovery:
    """Owns the histories and the pending restarts. `start` launches a profile without ending others for it."""

    def __init__(
        self, policy: RestartPolicy, start: Callable[[str], Awaitable[object]], publish: Callable[[Event], None]
    ) -> None:
        self._policy = policy
        self._start = start
        self._publish = publish
        self._courses: dict[str, _Course] = {}
        self._endings_kept = _ENDINGS_FOR_EACH_CRASH * (policy.crashes_most + 1)

    def ended(self, life: Instance) -> None:
        """A life is over: decide what follows, and see to it."""
        course = self._courses.get(life.profile_id)
        if course is None or course.revision != life.launch.revision:
            self.clear(life.profile_id)
            course = self._courses[life.profile_id] = _Course(life.launch.revision, deque(maxlen=self._endings_kept))
        now = asyncio.get_running_loop().time()
        failure = life.story.failure
        course.endings.append(
            Ending(
                at_seconds=now,
                reason=failure.reason if failure else "stopped",
                ready_seconds=life.story.ready_seconds,
                was_asked=life.was_asked,
                had_neighbour=life.followed_eviction,
            )
        )
        course.failure = failure
        course.next = following(tuple(course.endings), self._policy)
        match course.next:
            case Restart(after_seconds, why):
                _log.warning("profile %s starts again in %g s: %s", life.profile_id, after_seconds, why)
                course.until_seconds = now + after_seconds
                course.restart = asyncio.create_task(self._restart(life.profile_id, after_seconds))
            case Hold(for_seconds, _):
                course.until_seconds = now + for_seconds
            case GiveUp(why):
                _log.error("profile %s is given up: %s", life.profile_id, why)
                self._publish(FindingRaised(life.profile_id, "restart", _given_up(life.profile_id, why, failure)))
            case _:
                pass

    def admit(self, profile_id: str, revision: int) -> None:
        """Let a request start this revision. Raises InstanceFailed where it failed, and would again."""
        if (obstacle := self.obstacle(profile_id, revision)) is not None:
            raise obstacle

    def obstacle(self, profile_id: str, revision: int) -> InstanceFailed | None:
        """What a request gets instead of a start of this revision, which failed and would again; None where it may."""
        course = self._courses.get(profile_id)
        if course is None or course.revision != revision or course.failure is None:
            return None
        if isinstance(course.next, GiveUp):
            return _not_again(profile_id, course.failure, course.next.why)
        is_held = isinstance(course.next, Hold) and asyncio.get_running_loop().time() < course.until_seconds
        return _not_again(profile_id, course.failure, "") if is_held else None

    def pending(self, profile_id: str, revision: int | None = None) -> asyncio.Task[None] | None:
        """The restart that is to come, if one is; with a `revision` only after an end of that one."""
        course = self._courses.get(profile_id)
        if course is None or course.restart is None or course.restart.done():
            return None
        return course.restart if revision is None or course.revision == revision else None

    def backoff_until(self, profile_id: str) -> datetime | None:
        """When the pause after a failure ends; None where there is none."""
        course = self._courses.get(profile_id)
        if course is None or not isinstance(course.next, Restart | Hold):
            return None
        left_seconds = course.until_seconds - asyncio.get_running_loop().time()
        return datetime.now(UTC) + timedelta(seconds=left_seconds) if left_seconds > 0 else None

    def given_up(self, profile_id: str) -> str | None:
        """Why the profile is no longer started by itself; None where it would be."""
        course = self._courses.get(profile_id)
        return course.next.why if course is not None and isinstance(course.next, GiveUp) else None

    def clear(self, profile_id: str) -> None:
        """Somebody has taken it in hand: the history is over, and so is a restart that is to come."""
        course = self._courses.pop(profile_id, None)
        if course is not None and course.restart is not None:
            course.restart.cancel()

    def close(self) -> None:
        """No more restarts."""
        for profile_id in list(self._courses):
            self.clear(profile_id)

    async def _restart(self, profile_id: str, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        try:
            await self._start(profile_id)
        except PacelineError as error:
            _log.warning("profile %s does not start again: %s", profile_id, error.message)
            self._publish(FindingRaised(profile_id, "restart", finding_of(error)))
        else:
            self._publish(ProfileRestarted(profile_id, RestartCause.FAILURE))


def finding_of(error: PacelineError) -> Finding:
    """An error that nobody was there to be told, as a finding."""
    if isinstance(error, LaunchRefused):
        found: Finding = next(each for each in error.report.findings if each.severity is Severity.ERROR)
        return found
    return findings.error(error.code, error.message, evidence="a start that nobody waited for")


def _not_again(profile_id: str, failure: Failure, why: str) -> InstanceFailed:
    lines = "".join(f"\n{line}" for line in failure.last_lines[-10:])
    return InstanceFailed(
        f"profile {profile_id!r} does not run ({failure.reason}): {failure.message}"
        + (f" Now {why}." if why else "")
        + lines,
        reason=failure.reason,
        last_lines=list(failure.last_lines),
    )


def _given_up(profile_id: str, why: str, failure: Failure | None) -> Finding:
    return findings.error(
        "restarts-given-up",
        f"Profile {profile_id} is no longer started by itself: {why}. Find the cause in its last lines; "
        f"POST /profiles/{profile_id}/start, or a change of the profile, begins anew.",
        expected="a server that keeps running",
        observed=failure.reason if failure else "",
        evidence="\n".join(failure.last_lines[-5:]) if failure else "",
    )
