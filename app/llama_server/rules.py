"""Rules on what the engine takes: flags, environment, methods. Pure."""

from app import findings
from app.findings import Finding, Fix
from app.llama_server.adapter_rules import RULES as ADAPTER_RULES
from app.llama_server.environment import ALLOWED_NAMES, ALLOWED_PREFIXES, is_allowed
from app.llama_server.extra_args import OWNED_BY_FIELD, ExtraFlag, read_flags, refusal
from app.llama_server.extra_args import is_allowed as is_flag_allowed
from app.llama_server.extra_rules import RULES as EXTRA_RULES
from app.llama_server.flags import SPEC_TYPES
from app.llama_server.help_text import is_removed
from app.placement.case import LaunchCase
from app.placement.override_patterns import look_for


def judge_engine(case: LaunchCase, emitted: tuple[str, ...]) -> list[Finding]:
    """Every verdict on what would be given to the engine; `emitted` are the flags built from the profile."""
    return [
        *flag_unknown(case, emitted),
        *flag_reserved(case),
        *flag_value(case),
        *env_reserved(case),
        *method_unsupported(case),
        *(found for rule in (*EXTRA_RULES, *ADAPTER_RULES) if (found := rule(case)) is not None),
    ]


def flag_unknown(case: LaunchCase, emitted: tuple[str, ...]) -> list[Finding]:
    """Flags that this build does not list: it would exit before it listens."""
    found = [
        _unknown_flag(case, flag, "the profile's extra_args")
        for flag in read_flags(case.profile.extra_args, case.engine.flags)
        if _is_unknown(flag)
    ]
    found += [
        _unknown_flag(case, flag, "what the profile asks for")
        for flag in read_flags(emitted, case.engine.flags)
        if _is_unknown(flag)
    ]
    return found


def _is_unknown(flag: ExtraFlag) -> bool:
    return flag.known is None or is_removed(flag.known)


def _unknown_flag(case: LaunchCase, flag: ExtraFlag, origin: str) -> Finding:
    replacement = ""
    if field := OWNED_BY_FIELD.get(flag.name):
        replacement = f" The profile's {field} says it."
    elif flag.known is not None:
        replacement = f" The engine says: {flag.known.text}"
    return findings.error(
        "flag-unknown",
        f"The engine {case.engine.build} has no flag {flag.name}, which comes from {origin}: it would exit at once."
        f"{replacement}",
        expected="a flag that the engine lists",
        observed=flag.name,
        evidence="the engine's --help",
        fixes=_without(case, flag) if origin.endswith("extra_args") else (),
    )


def flag_reserved(case: LaunchCase) -> list[Finding]:
    """Flags that Paceline owns, or that would open the machine."""
    return [
        findings.error(
            "flag-reserved",
            f"{flag.name} cannot be in extra_args: {refusal(flag.name)}.",
            expected="a flag of the allowlist",
            observed=flag.name,
            evidence="the profile's extra_args",
            fixes=_without(case, flag),
        )
        for flag in read_flags(case.profile.extra_args, case.engine.flags)
        if not _is_unknown(flag) and not is_flag_allowed(flag.name)
    ]


def flag_value(case: LaunchCase) -> list[Finding]:
    """Values that the engine cannot read: it would take the next flag for one, or exit at once."""
    found = [
        findings.error(
            "flag-value",
            f"{flag.name} in extra_args has no value: the engine would take what follows for it.",
            expected=f"a value after {flag.name}",
            observed="the end of extra_args",
            evidence="the engine's --help",
            fixes=_without(case, flag),
        )
        for flag in read_flags(case.profile.extra_args, case.engine.flags)
        if flag.known is not None and flag.known.takes_value and flag.at is None
    ]
    return found + _overrides_refused(case)


def _overrides_refused(case: LaunchCase) -> list[Finding]:
    """Tensor overrides that the engine could not read, or would search for without end; all in one finding."""
    entries = case.profile.placement.override_tensor
    shapely = {entry: entry.partition("=")[0] for entry in entries if _is_override(entry)}
    names = case.target.tensors if case.target is not None else ()
    refused = look_for(tuple(shapely.values()), names).refused
    wrong = {entry: "is not `pattern=buffer`" for entry in entries if entry not in shapely}
    wrong |= {entry: refused[pattern].value for entry, pattern in shapely.items() if pattern in refused}
    if not wrong:
        return []
    kept = [entry for entry in entries if entry not in wrong]
    return [
        findings.error(
            "flag-value",
            f"In placement.override_tensor {', and '.join(f'{entry!r} {reason}' for entry, reason in wrong.items())}.",
            expected="a short regular expression without commas, `=`, the name of a buffer type such as CPU",
            observed=", ".join(wrong),
            evidence="the profile",
            fixes=[Fix("Leave them out", {"placement": {"override_tensor": kept}})],
        )
    ]


def _is_override(entry: str) -> bool:
    """The engine splits at every comma, and at the first `=`."""
    pattern, equals, buffer = entry.partition("=")
    return bool(pattern and equals and buffer) and "," not in entry


def _without(case: LaunchCase, flag: ExtraFlag) -> list[Fix]:
    kept: list[str] = []
    words = case.profile.extra_args
    for other in read_flags(words, case.engine.flags):
        if other.name != flag.name:
            start = len(kept)
            kept[start:] = [other.name] if other.at is None else [other.name, words[other.at]]
    return [Fix(f"Leave {flag.name} out", {"extra_args": kept})]


def env_reserved(case: LaunchCase) -> list[Finding]:
    """Variables outside the allowlist: they could load code or reconfigure the engine."""
    refused = sorted(name for name in case.profile.env if not is_allowed(name))
    if not refused:
        return []
    allowed = ", ".join([*sorted(ALLOWED_NAMES), *(f"{prefix}*" for prefix in ALLOWED_PREFIXES)])
    allowed += " (but none that names a file or a library)"
    return [
        findings.error(
            "env-reserved",
            f"A profile may not set {', '.join(refused)}; it may set {allowed}.",
            expected=allowed,
            observed=", ".join(refused),
            evidence="the profile's env",
            fixes=[Fix("Leave them out", {"env": dict.fromkeys(refused)})],
        )
    ]


def method_unsupported(case: LaunchCase) -> list[Finding]:
    """Methods that this build does not know."""
    missing = [m for m in case.profile.speculation.methods if SPEC_TYPES[m] not in case.engine.spec_types]
    if not missing:
        return []
    listed = ", ".join(sorted(case.engine.spec_types))
    return [
        findings.error(
            "method-unsupported",
            f"The engine {case.engine.build} does not know {', '.join(SPEC_TYPES[m] for m in missing)}; "
            f"it knows {listed}.",
            expected="a build whose --spec-type lists the method",
            observed=", ".join(missing),
            evidence="the engine's --help",
            fixes=[Fix("Do without speculation", {"speculation": {"method": "none", "draft": None, "also": []}})],
        )
    ]
