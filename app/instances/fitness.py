"""Whether an instance may serve as it came up, by what its profile says of degradations. Pure."""

from collections.abc import Sequence

from app.findings import Finding
from app.instances.diagnosis import degradations_of
from app.llama_server.log_lines import Failure
from app.profiles.profile import LaunchProfile


def unfit(profile: LaunchProfile, findings: Sequence[Finding]) -> Failure | None:
    """Why it shall not serve, named by its first degradation; None where it may."""
    degradations = degradations_of(findings)
    if not degradations or profile.serving.on_degraded != "stop":
        return None
    return Failure(degradations[0], f"Degraded, and the profile says stop: {', '.join(degradations)}.")
