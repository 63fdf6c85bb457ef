"""The host as the kernel tells it, within the limits that a container sets."""

import os
from collections.abc import Sequence
from pathlib import Path

from app.inventory.cgroup import Limits, read_limits
from app.inventory.devices import Host
from app.inventory.kernel_files import number_list, read_fields, read_text, whole_number


def host_now(root: Path = Path("/")) -> Host:
    """Memory in bytes, cores and NUMA nodes; None where the kernel does not tell.

    `root` is where `proc` and `sys` lie. Never raises: a file that is missing or damaged leaves its figure out.
    """
    limits = read_limits(root)
    memory = _memory_of(root, limits)
    return Host(
        total_bytes=memory.total_bytes,
        available_bytes=memory.available_bytes,
        physical_cores=_smallest(_cores(root), None if limits.processors is None else max(1, int(limits.processors))),
        numa_nodes=_numa_nodes(root),
    )


def host_memory_now(root: Path = Path("/")) -> Host:
    """The same without cores and nodes, which cost a file each and do not change."""
    return _memory_of(root, read_limits(root))


def _memory_of(root: Path, limits: Limits) -> Host:
    memory = read_fields(root / "proc/meminfo")
    return Host(
        total_bytes=_smallest(_kibibytes(memory.get("MemTotal")), limits.memory_bytes),
        available_bytes=_smallest(_kibibytes(memory.get("MemAvailable")), limits.memory_available_bytes),
    )


def _smallest(*figures: int | None) -> int | None:
    return min((figure for figure in figures if figure is not None), default=None)


def _kibibytes(text: str | None) -> int | None:
    number = whole_number((text or "").removesuffix("kB"))
    return None if number is None or number < 0 else number << 10


def _cores(root: Path) -> int | None:
    """Physical cores that this process may run on: threads of one core count once."""
    usable = number_list(read_fields(root / "proc/self/status").get("Cpus_allowed_list", ""))
    cores: set[str] = set()
    for folder in _numbered(root / "sys/devices/system/cpu", "cpu"):
        if usable and int(folder.name.removeprefix("cpu")) not in usable:
            continue
        # The older name of the same list.
        siblings = read_text(folder / "topology/core_cpus_list") or read_text(folder / "topology/thread_siblings_list")
        if siblings is not None:
            cores.add(siblings.strip())
    if cores:
        return len(cores)
    return len(usable) or (os.cpu_count() if root == Path("/") else None)


def _numa_nodes(root: Path) -> int | None:
    return len(_numbered(root / "sys/devices/system/node", "node")) or None


def _numbered(folder: Path, prefix: str) -> Sequence[Path]:
    """Entries such as `cpu0`, `cpu1`."""
    try:
        return [entry for entry in folder.iterdir() if entry.name.removeprefix(prefix).isdecimal()]
    except OSError:
        return []
