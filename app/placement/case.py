"""LaunchCase: all that a rule may look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.findings import Finding
from app.inventory.devices import Machine
from app.inventory.engine import EngineFacts
from app.inventory.models import ModelFile, ModelKind
from app.profiles.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class Adapter:
    """A file that changes the target without being one: `kind`, LoRA or control vector, is what its `flag` makes of it.

    What the file really is, its own kind says.
    """

    flag: str
    kind: ModelKind
    file: ModelFile


@dataclass(frozen=True, slots=True)
class LaunchCase:
    """One question: this profile, with these files, on this machine, with this engine.

    `target` and `draft` are None where there is no such file or it cannot be read (`unreadable` then says why, and the
    rules that would need it stay silent). `claims` lists, for each name of this profile, the other profiles that
    answer to it. `first_different_token` is the lowest token id, of those that an ordinary draft must share with its
    target, whose text differs; None where none does, or the method does not draft that way.
    """

    profile: LaunchProfile
    machine: Machine
    engine: EngineFacts
    target: ModelFile | None = None
    draft: ModelFile | None = None
    projector: ModelFile | None = None
    adapters: Sequence[Adapter] = ()
    unreadable: Sequence[Finding] = ()
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    first_different_token: int | None = None
