"""The newest lives, read while others come."""

from pathlib import Path
from typing import Any, cast

from fixtures.lives import life

from app.instances.instance import Instance
from app.instances.record import InstanceRecord
from app.instances.roster import Roster


class Arriving:
    """Stands for a life; whenever it is asked, another profile comes up, as it can while a thread reads."""

    def __init__(self, roster: Roster, number: int) -> None:
        self.id = number
        self.profile_id = f"profile-{number}"
        self._roster = roster

    def record(self) -> InstanceRecord:
        add(self._roster, self.id + 1)
        return life(id=self.id, profile_id=self.profile_id)


def add(roster: Roster, number: int) -> None:
    roster.add(cast(Instance, cast(Any, Arriving(roster, number))))


def test_it_can_be_read_while_a_profile_comes_up(tmp_path: Path) -> None:
    roster = Roster(tmp_path, queued=lambda _: 2)
    add(roster, 1)
    assert [(record.id, record.queued) for record in roster.records()] == [(1, 2)]
    assert [record.id for record in roster.records()] == [2, 1]
    assert roster.logs_of(7, 10) == []
