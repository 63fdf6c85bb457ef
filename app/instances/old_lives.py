"""Lives that ended long ago."""

from sqlmodel import Session

from app.identifiers import first_id_at
from app.instances.state import InstanceState

_ENDED = ", ".join(f"'{state.value}'" for state in InstanceState if state.is_terminal)
# When a life ended that its service did not outlive, nobody saw: it was before the next one of its profile began.
# The newest of a profile has no next one, and stays: it says how the profile stands.
_DELETE = f"""
DELETE FROM instance WHERE id IN (
    SELECT life.id FROM instance AS life
    WHERE life.id < :end_id AND life.state IN ({_ENDED}) AND (
        SELECT coalesce(life.stopped_at_ms, next.created_at_ms) FROM instance AS next
        WHERE next.profile_id = life.profile_id AND next.id > life.id ORDER BY next.id LIMIT 1
    ) < :before
    ORDER BY life.id LIMIT :most
)
"""  # noqa: S608 - our own words


def delete_old_lives(session: Session, before_milliseconds: int, most: int) -> int:
    """Delete up to `most` lives, the oldest, that ended before this time (milliseconds since 1970), though never the
    newest of a profile; how many there were. On the writer thread.
    """
    values = {"before": before_milliseconds, "end_id": first_id_at(before_milliseconds), "most": most}
    return session.connection().exec_driver_sql(_DELETE, values).rowcount
