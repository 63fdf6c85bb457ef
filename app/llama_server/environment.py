"""The environment of a child: what of ours it may see, and what must not reach it. Pure."""

from collections.abc import Mapping

# Read by llama.cpp before its command line, so they would silently change a launch (`LLAMA_ARG_*`), make it a
# router's child, or move its port (`AIP_*`).
_DROPPED_PREFIXES = ("LLAMA_", "AIP_", "PACELINE_")

ALLOWED_NAMES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
ALLOWED_PREFIXES = ("GGML_", "ONEAPI_", "OMP_")
# Of those families, what names a file: `GGML_BACKEND_PATH` and `OMP_TOOL_LIBRARIES` load libraries.
_NAMES_A_FILE = ("PATH", "LIB", "FILE", "DIR", "TOOL", "CACHE", "DUMP")


def is_allowed(name: str) -> bool:
    """Whether a profile may set this variable: an allowlist, so that none can load code or reconfigure the engine."""
    if name in ALLOWED_NAMES:
        return True
    return name.startswith(ALLOWED_PREFIXES) and not any(word in name for word in _NAMES_A_FILE)


def child_environment(
    ours: Mapping[str, str], profile_env: Mapping[str, str], *, empty_folder: str, api_key: str | None = None
) -> dict[str, str]:
    """The environment for one engine process.

    `empty_folder` stands in for the user's configuration folder, which the engine would read flags from. The key goes
    by the environment because an argument list is visible to every user of the machine.
    """
    environment = {name: value for name, value in ours.items() if not name.startswith(_DROPPED_PREFIXES)}
    environment.update(
        XDG_CONFIG_HOME=empty_folder,
        # A backtrace of an abort starts a debugger and takes seconds.
        GGML_NO_BACKTRACE="1",
        # Without it CUDA numbers devices by speed, and the driver by bus.
        CUDA_DEVICE_ORDER="PCI_BUS_ID",
    )
    environment.update(profile_env)
    if api_key is not None:
        environment["LLAMA_API_KEY"] = api_key
    return environment
