"""Profiles that come up with the service: one after another, the most important first."""

import logging
from collections.abc import Callable

from app.errors import PacelineError, ProfileNotRunning
from app.events import Event
from app.instances.facts import FindingRaised
from app.instances.recovery import finding_of
from app.instances.state import InstanceState
from app.instances.supervisor import Supervisor
from app.profiles.catalog import ProfileCatalog

_log = logging.getLogger(__name__)


async def autostart(catalog: ProfileCatalog, supervisor: Supervisor, publish: Callable[[Event], None]) -> None:
    """Start each behind its plan, and wait until it is ready or has failed; nothing that runs is ended for it.

    What does not fit is told, and not tried again.
    """
    wanted = [stored.profile for stored in catalog.list() if stored.profile.serving.autostart]
    for profile in sorted(wanted, key=lambda each: (-each.serving.priority, each.id)):
        try:
            life = await supervisor.start_alone(profile.id)
        except ProfileNotRunning as stopped:
            # By hand, or with the service: whoever did it knows.
            _log.info("profile %s is not started: %s", profile.id, stopped.message)
        except PacelineError as error:
            _log.warning("profile %s is not started: %s", profile.id, error.message)
            publish(FindingRaised(profile.id, "autostart", finding_of(error)))
        except Exception:
            # A mistake of ours in one of them is none in the others.
            _log.exception("profile %s is not started", profile.id)
        else:
            await life.until(lambda state: state is InstanceState.READY or state.is_terminal)
