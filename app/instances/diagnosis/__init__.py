"""What is wrong with an instance now: pure functions from evidence to findings, shaped as those before a launch.

A finding has the id that the check uses for the same thing. None refuses anything, so none is an `error`.

**Degradations** are those of them that READY carries: the engine answers, but not as its profile asks, or speculation
costs more than it gives, which is the promise. They are told as events, and `on_degraded: stop` is about them.
**Advice** is the rest: the launch is as asked, and the machine (`thermal-or-power-limit`), the plan
(`memory-over-plan`, `expert-offload-imbalance`) or the wish itself (`slots-share-context`) could be better. A finding
of severity `info` is never a degradation: the profile, or its plan, says so itself, or it cannot be told whose it is.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from app.findings import Finding, Severity
from app.instances.diagnosis import balance, context, devices, memory, placement, speculation, speed
from app.instances.evidence import Evidence

Rule = Callable[[Evidence], Finding | Iterable[Finding] | None]

RULES: Final[tuple[Rule, ...]] = (
    *speculation.RULES,
    *placement.RULES,
    *context.RULES,
    *memory.RULES,
    *balance.RULES,
    *devices.RULES,
    *speed.RULES,
)
DEGRADATIONS: Final = frozenset(
    {
        "speculation-inactive",
        "speculation-given-up",
        "acceptance-collapsed",
        "slower-than-baseline",
        "draft-on-host",
        "draft-apart",
        "layers-on-host",
        "context-smaller-than-asked",
        "device-starved",
    }
)


def diagnose(evidence: Evidence) -> list[Finding]:
    """All findings on this evidence, in the order of the rules. What is not known is judged by no rule."""
    found: list[Finding] = []
    for rule in RULES:
        verdict = rule(evidence)
        if isinstance(verdict, Finding):
            found.append(verdict)
        elif verdict is not None:
            found += verdict
    return found


def degradations_of(verdicts: Sequence[Finding]) -> tuple[str, ...]:
    """The ids of those that are degradations, sorted, each once."""
    degraded = {found.rule for found in verdicts if found.rule in DEGRADATIONS and found.severity is not Severity.INFO}
    return tuple(sorted(degraded))
