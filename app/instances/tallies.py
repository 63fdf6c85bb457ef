"""Counts of what each living instance has served, from what its answers report."""

from dataclasses import replace

from app.instances.evidence import Tally
from app.instances.state import InstanceStateChanged


class Tallies:
    """Told of each finished request; forgets an instance when it ends."""

    def __init__(self) -> None:
        self._tallies: dict[int, Tally] = {}

    def of(self, instance_id: int) -> Tally:
        """What an instance has served so far."""
        return self._tallies.get(instance_id, Tally())

    def add(
        self,
        instance_id: int,
        *,
        generated_tokens: int | None,
        generation_us: int | None,
        draft_tokens: int | None,
        accepted_tokens: int | None,
    ) -> None:
        """A request has ended. Its times count where it generated two tokens: they cover one less than its tokens."""
        tally = self._tallies.get(instance_id, Tally())
        if generated_tokens is not None and generated_tokens >= 2 and generation_us:
            tally = replace(
                tally,
                requests=tally.requests + 1,
                generated_tokens=tally.generated_tokens + generated_tokens,
                generation_seconds=tally.generation_seconds + generation_us / 1e6,
            )
        self._tallies[instance_id] = replace(
            tally,
            draft_tokens=tally.draft_tokens + (draft_tokens or 0),
            accepted_tokens=tally.accepted_tokens + (accepted_tokens or 0),
        )

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """A life that is over needs no tally."""
        if event.state.is_terminal:
            self._tallies.pop(event.instance_id, None)
