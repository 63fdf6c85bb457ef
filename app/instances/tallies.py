"""Counts of what each living instance has served, from what its answers report."""

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
        tally = self.of(instance_id)
        has_rate = generated_tokens is not None and generated_tokens >= 2 and bool(generation_us)
        self._tallies[instance_id] = Tally(
            requests=tally.requests + has_rate,
            generated_tokens=tally.generated_tokens + (generated_tokens or 0) * has_rate,
            generation_seconds=tally.generation_seconds + (generation_us or 0) / 1e6 * has_rate,
            draft_tokens=tally.draft_tokens + (draft_tokens or 0),
            accepted_tokens=tally.accepted_tokens + (accepted_tokens or 0),
        )

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """A life that is over needs no tally."""
        if event.state.is_terminal:
            self._tallies.pop(event.instance_id, None)
