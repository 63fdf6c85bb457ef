"""How the command ends."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of `paceline`; its help and the user guide list them."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3

    @property
    def meaning(self) -> str:
        """One line for the help."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.DONE: "done, or the profile may be launched",
    Exit.REFUSED: "a check refused, a diagnosis found something, a launch failed, or the service refused",
    Exit.USAGE: "the command line or a setting is wrong; of `check` and `diagnose` every failure to get an answer",
    Exit.UNREACHABLE: "no service answers at the address",
}
