"""The rules: each a small pure function from a case to a finding, or to None."""

from collections.abc import Callable

from app.findings import Finding
from app.placement.case import LaunchCase
from app.placement.rules import (
    devices,
    draft_device,
    drafters,
    experts,
    files,
    fit,
    machine,
    names,
    parameters,
    split,
    tensor_mode,
    vocabulary,
)

Rule = Callable[[LaunchCase], Finding | None]

RULES: tuple[Rule, ...] = (
    *files.RULES,
    *drafters.RULES,
    *vocabulary.RULES,
    *parameters.RULES,
    *devices.RULES,
    *machine.RULES,
    *split.RULES,
    *draft_device.RULES,
    *tensor_mode.RULES,
    *fit.RULES,
    *experts.RULES,
    *names.RULES,
)


def judge(case: LaunchCase) -> list[Finding]:
    """Every verdict on this case, in the order of the rules."""
    return [*case.unreadable, *(finding for rule in RULES if (finding := rule(case)) is not None)]
