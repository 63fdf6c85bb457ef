"""Records of lives as they are kept: numbered, so that of two the newer is known, and as JSON."""

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from app.instances.record import InstanceRecord
from app.instances.state import InstanceState

_TIMES = ("created_at", "ready_at", "stopped_at")
_NUMBER = "number"


@dataclass(frozen=True, slots=True)
class ToldRecord:
    """A record, and how many of all lives were told until it in the run of the service to which its life belongs.

    Of two records of a life the one with the higher number is newer. Those of early versions have 0. `document` is both
    as one line of JSON.
    """

    record: InstanceRecord
    number: int
    document: str

    @classmethod
    def of(cls, record: InstanceRecord, number: int) -> "ToldRecord":
        """Raises TypeError where JSON cannot hold the record."""
        document: dict[str, Any] = {**asdict(record), _NUMBER: number}
        for name in _TIMES:
            document[name] = document[name].isoformat() if document[name] else None
        return cls(record, number, json.dumps(document))

    @classmethod
    def read(cls, document: str) -> "ToldRecord":
        """Raises ValueError for what is none."""
        members = json.loads(document)
        try:
            for name in _TIMES:
                members[name] = datetime.fromisoformat(members[name]) if members[name] else None
            members["state"] = InstanceState(members["state"])
            number = members.pop(_NUMBER, 0)
            return cls(InstanceRecord(**members), number, document)
        except (KeyError, TypeError) as failure:
            raise ValueError(f"no record of a life: {failure}") from failure

    def is_newer_than(self, other: "ToldRecord | None") -> bool:
        """Whether it takes the place of the other one of its life."""
        return other is None or self.number > other.number

    def ended_unseen(self) -> "ToldRecord":
        """How the life stands when its service is gone: as it was told, or failed where that was not its end."""
        if self.record.state.is_terminal:
            return self
        ended = replace(self.record, state=InstanceState.FAILED, reason="service-ended", pid=None, leases=0)
        return ToldRecord.of(ended, self.number)
