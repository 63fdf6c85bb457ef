"""What a check says beside the rules: what it cannot see. Never passed over."""

from pathlib import Path

from app import findings
from app.findings import Finding
from app.launch.witness import Refusal, Unwitnessed

_SYSTEM_CONFIG = Path("/etc/llama.cpp/config.ini")


def notices() -> list[Finding]:
    """Configuration of the engine that is out of our reach."""
    if not _SYSTEM_CONFIG.exists():
        return []
    return [
        findings.warning(
            "system-config",
            f"{_SYSTEM_CONFIG} exists: the engine reads flags from it that this check does not see.",
            expected="no such file",
            observed=str(_SYSTEM_CONFIG),
            evidence="the file system",
        )
    ]


def not_witnessed(unwitnessed: Unwitnessed) -> Finding:
    """The engine was asked and has not confirmed the plan."""
    return findings.info(
        "not-witnessed",
        f"The engine did not confirm these figures: {unwitnessed.message}",
        expected="a dry run of the engine",
        observed=unwitnessed.reason,
        evidence="the dry run",
    )


def rpc_held() -> Finding:
    """An RPC server serves one client at a time: a second engine would wait for it while loading."""
    return findings.error(
        "rpc-held",
        "Another instance uses the RPC servers, which serve one client at a time: this launch would wait for them "
        "while it loads. Stop that instance, or choose devices that are not RPC.",
        expected="RPC servers that nobody uses",
        observed="an instance that was started with --rpc",
        evidence="the instances of this service",
        overridable=True,
    )


def engine_refuses(refusal: Refusal) -> Finding:
    """The engine itself, asked with the very flags of the launch, does not take it."""
    failure = refusal.failure
    return findings.error(
        "engine-refuses",
        f"The engine refuses this launch in its own dry run ({failure.reason}): {failure.message}",
        expected="a dry run that comes to its end",
        observed=failure.reason,
        evidence="\n".join(failure.last_lines[-5:]),
    )
