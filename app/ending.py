"""How the service ends: who waits is let go, then what runs is stopped, then what was told last is written."""

from collections.abc import Callable

from app.api.event_feed import EventFeed
from app.database import Database
from app.instances.archive import InstanceArchive
from app.instances.output_feeds import OutputFeeds
from app.instances.supervisor import Supervisor
from app.launch.dry_run import DryRuns
from app.proxy.upstream import Upstreams
from app.telemetry.recorder import Recorder


def end_of_waiting(
    event_feed: EventFeed, outputs: OutputFeeds, supervisor: Supervisor, dry_runs: DryRuns, database: Database
) -> Callable[[], None]:
    """Streams that follow, requests that wait for a profile, for an engine that measures or for whoever holds the
    database, would keep the server from ending: it waits for its connections.
    """

    def end() -> None:
        supervisor.begin_closing()
        event_feed.close()
        outputs.close()
        dry_runs.end()
        database.hurry()

    return end


async def write_the_rest(
    dry_runs: DryRuns, upstreams: Upstreams, database: Database, recorder: Recorder, archive: InstanceArchive
) -> None:
    """Once nothing runs any more: write what was told last, or leave it to the next start."""
    database.hurry()
    await dry_runs.close()
    upstreams.close()
    await recorder.close()
    await archive.close()
