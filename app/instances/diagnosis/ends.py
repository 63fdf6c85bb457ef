"""What the end of a life says: its reason as a finding, with the remedy where one is known."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.findings import Finding, Fix, Severity
from app.instances.diagnosis import DEGRADATIONS
from app.instances.diagnosis.changes import WITHOUT_SPECULATION, changing
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.profiles.profile import LaunchProfile

_LOGS: Final = "Read its last lines: GET /instances/{id}/logs"
_START: Final = "Start it again: POST /profiles/{id}/start"
_CHECK: Final = "Ask what fits now: POST /profiles/{id}/check, and /suggest for profiles that do"
_SIGNAL: Final = re.compile(r"killed-by-signal-(\d+)")
_FLAG: Final = re.compile(r"--?[a-zA-Z][\w-]*")


@dataclass(frozen=True, slots=True)
class _End:
    """One reason: what it means and what to do."""

    meaning: str
    advice: str
    patch: Mapping[str, Any] = field(default_factory=dict)


_AUTOSTART: Final[Mapping[str, Any]] = {"serving": {"autostart": True}}

ENDS: Final[Mapping[str, _End]] = {
    "out-of-memory": _End("An allocation failed.", _CHECK),
    "flag-unknown": _End("The engine has no such flag.", "Leave the flag out, or use a build that has it"),
    "flag-value": _End("The engine refused the value of a flag.", "Correct the value that its last lines name"),
    "bad-model": _End("The engine could not load the target.", "Look into the file: GET /models, or fetch it again"),
    "draft-failed": _End("The engine could not set up the drafter.", "No speculation", WITHOUT_SPECULATION),
    "address-in-use": _End("Its address was taken by another program meanwhile.", _START),
    "address-foreign": _End("Another program answers at its address.", _START),
    "engine-not-started": _End(
        "The system refused to execute the engine.", "Correct PACELINE_ENGINE: GET /version shows what it names"
    ),
    "load-timeout": _End("It was not ready in time.", "Raise PACELINE_LOAD_TOTAL_SECONDS where the disk is slow"),
    "load-stalled": _End(
        "Its load came to a standstill: it read nothing, took no memory and said nothing.",
        "Look at the disk or network of the model folder; PACELINE_LOAD_STALL_SECONDS where it is only slow",
    ),
    "readiness-failed": _End("It said that it was healthy, and could not be asked about itself.", _LOGS),
    "unresponsive": _End("It lived and answered no more, so it was ended: its device may be lost.", _START),
    "internal-error": _End("The service made a mistake with it.", "The service's log says which; then start it again"),
    "exited": _End("It ended by itself, with an exit code that says no more.", _LOGS),
    "service-ended": _End("The service ended without stopping it.", _START),
    "service-stopped": _End(
        "The service stopped, and its engines with it.", "Bring it up with the service", _AUTOSTART
    ),
    "fallback": _End(
        "Its speculation did not work, and its profile says to go on without it.",
        "Mend the speculation, or leave it out for good",
        WITHOUT_SPECULATION,
    ),
    "restart": _End("It gave way to a new life of its profile, as asked.", "Nothing: look at the newer instance"),
    "idle-timeout": _End(
        "Nobody asked it anything for so long as its profile allows.",
        "Keep it while nobody asks",
        {"serving": {"idle_timeout_seconds": None}},
    ),
    "evicted": _End(
        "It was idle and made room for another profile.",
        "Never end it for others",
        {"serving": {"pinned": True}},
    ),
}
_SIGNALS: Final[Mapping[int, _End]] = {
    9: _End("The system killed it, as a rule because memory ran out (or somebody did).", _CHECK),
    6: _End("The engine aborted: something that it holds for certain was not so.", _LOGS),
    11: _End("The engine crashed.", _LOGS),
}
_OTHER_SIGNAL: Final = _End("A signal from outside ended it.", _START)
_DEGRADED: Final = _End(
    "It came up degraded, and its profile says to stop then.",
    "Keep it also where it is degraded",
    {"serving": {"on_degraded": "keep"}},
)
_UNKNOWN: Final = _End("It ended for a reason that has no explanation here.", _LOGS)


def end_of(record: InstanceRecord, profile: LaunchProfile | None = None) -> list[Finding]:
    """The reason of a life that is over, as a finding whose id it is; nothing where it was stopped as asked.

    An error where it failed; info where it was stopped for a reason, which somebody decided.
    Fixes are for `profile`, as it stands now: those that would change nothing in it are left out. Without one only
    advice is given.
    """
    if record.reason is None:
        return []
    end = _end(record.reason)
    failure = record.failure or {}
    said, lines = str(failure.get("message") or ""), failure.get("last_lines") or ()
    exited = "" if record.exit_code is None else f", exit code {record.exit_code}"
    return [
        Finding(
            str(record.reason),
            Severity.ERROR if record.state is InstanceState.FAILED else Severity.INFO,
            " ".join([end.meaning, *([_sentence(said)] if said else [])]),
            expected="a life that ends when it is asked to",
            observed=f"{record.state.value}: {record.reason}{exited}",
            evidence="\n".join(str(line) for line in list(lines)[-5:]) or "the record of its life",
            fixes=_fixes(record.reason, end, said, profile),
        )
    ]


def _sentence(said: str) -> str:
    """The engine's own words end as they like."""
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _end(reason: str) -> _End:
    if signal := _SIGNAL.fullmatch(reason):
        return _SIGNALS.get(int(signal[1]), _OTHER_SIGNAL)
    return ENDS.get(reason) or (_DEGRADED if reason in DEGRADATIONS else _UNKNOWN)


def _fixes(reason: str, end: _End, said: str, profile: LaunchProfile | None) -> list[Fix]:
    if profile is None:
        return [Fix(end.advice)]
    if reason == "flag-unknown":
        named = [word for word in profile.extra_args if word in _FLAG.findall(said)]
        if named:
            return [_without(profile, named[0])]
    return changing(profile, [Fix(end.advice, end.patch)])


def _without(profile: LaunchProfile, flag: str) -> Fix:
    """The extra arguments without a flag, and without its value: what follows and is no flag."""
    kept: list[str] = []
    is_value = False
    for word in profile.extra_args:
        if word == flag:
            is_value = True
        elif not (is_value and not word.startswith("-")):
            kept.append(word)
            is_value = False
    return Fix(f"Leave {flag} out", {"extra_args": kept})
