"""A stub `libnvidia-ml.so.1` and the scenarios it plays (stub.c lists the words), so that nvidia-ml-py itself runs."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
SCENARIO_VARIABLE = "NVML_STUB_SCENARIO"
UNKNOWN_ERROR = 999
NOT_SUPPORTED = 3
NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15

MIB = 1 << 20
GIB = 1 << 30
# What an idle RTX 4090 says.
FIGURES: Mapping[str, int] = {
    "util_gpu": 0, "util_memory": 0, "power_milliwatts": 21_500, "power_limit_milliwatts": 450_000,
    "temperature_celsius": 37, "clock_graphics": 210, "clock_sm": 210, "clock_memory": 405, "throttle_bits": 1,
    "pcie_generation": 1, "pcie_width": 16, "pcie_generation_max": 4, "pcie_width_max": 16,
    "pcie_sent_kilobytes": 0, "pcie_received_kilobytes": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card of a scenario. Without `total_bytes` memory is unsupported; `lines` are more words of stub.c."""

    uuid: str
    pci: str
    name: str = "NVIDIA GeForce RTX 4090"
    total_bytes: int | None = 24564 * MIB
    free_bytes: int = 24000 * MIB
    figures: Mapping[str, int] = field(default_factory=lambda: FIGURES)
    lines: Sequence[str] = ()

    def text(self) -> str:
        said = [f"uuid {self.uuid}", f"pci {self.pci}", f"name {self.name}"]
        if self.total_bytes is not None:
            said.append(f"memory {self.total_bytes} {self.free_bytes}")
        said += [f"figure {name} {value}" for name, value in self.figures.items()]
        return "\n".join(["device", *said, *self.lines])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A machine; `lines` come before its cards, so errors in them are about every card."""

    cards: Sequence[Card] = ()
    driver: str = "580.95.05"
    lines: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """Put it in place at once: the library never reads half of it."""
        draft = path.with_suffix(".draft")
        draft.write_text("\n".join([f"driver {self.driver}", *self.lines, *(card.text() for card in self.cards), ""]))
        draft.replace(path)


def build(folder: Path) -> Path | None:
    """Compile the stub into a folder; the folder, or None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    flags = "-shared -fPIC -O1 -Wall -Wextra -Werror -Wl,-soname,libnvidia-ml.so.1".split()
    subprocess.run([compiler, *flags, "-o", folder / LIBRARY, Path(__file__).with_name("stub.c")], check=True)
    return folder


def stub_environment(library_folder: Path, scenario: Path) -> dict[str, str]:
    """The variables with which a process loads the stub instead of the driver's library."""
    others = os.environ.get("LD_LIBRARY_PATH")
    path = f"{library_folder}:{others}" if others else str(library_folder)
    return {"LD_LIBRARY_PATH": path, SCENARIO_VARIABLE: str(scenario)}
