"""The limits that the kernel holds a process to: a container's limit counts, not the host's.

Both generations of control groups are read; each group up to the root of the hierarchy may set a limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.inventory.kernel_files import read_fields, read_number, read_text, whole_number

# Generation 1 writes "no limit" as the largest number of pages.
_UNLIMITED_BYTES: Final = 1 << 62
# The page cache is charged to the group that read the file first, and given back when memory runs short.
_RECLAIMABLE_V2: Final = ("active_file", "inactive_file", "slab_reclaimable")
_RECLAIMABLE_V1: Final = ("total_active_file", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the groups of this process allow, None where nothing is limited.

    `memory_available_bytes` is what may be taken beyond what is in use, the page cache not counted as use.
    """

    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    processors: float | None = None


def read_limits(root: Path) -> Limits:
    """The tightest limits of all groups that this process is in; files that are not there limit nothing."""
    totals: list[int] = []
    available: list[int] = []
    processors: list[float] = []
    for group in _groups(root, "memory"):
        limit = _memory_limit(group)
        if limit is not None:
            totals.append(limit)
            available.append(max(0, limit - _used_bytes(group)))
    for group in _groups(root, "cpu"):
        quota = _processor_quota(group)
        if quota is not None:
            processors.append(quota)
    return Limits(min(totals, default=None), min(available, default=None), min(processors, default=None))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's groups for a controller, of both generations, up to the root of each hierarchy."""
    base = root / "sys/fs/cgroup"
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            mounts = (base, base / "unified")
        elif controller in controllers.split(","):
            mounts = (base / controller, base / controllers)
        else:
            continue
        # In a container the path may be the host's, which is not there; what is mounted then is the group itself.
        parts = [part for part in path.split("/") if part]
        if ".." in parts:
            parts = []
        for mount in dict.fromkeys(mounts):
            for depth in range(len(parts), -1, -1):
                yield mount.joinpath(*parts[:depth])


def _memory_limit(group: Path) -> int | None:
    limits = [read_number(group / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    return min((limit for limit in limits if limit is not None and limit < _UNLIMITED_BYTES), default=None)


def _used_bytes(group: Path) -> int:
    """What is in use and cannot be reclaimed; all that is charged where the kernel does not tell them apart."""
    current = read_number(group / "memory.current")
    reclaimable: Sequence[str] = _RECLAIMABLE_V2
    if current is None:
        current, reclaimable = read_number(group / "memory.usage_in_bytes"), _RECLAIMABLE_V1
    fields = read_fields(group / "memory.stat")
    return max(0, (current or 0) - sum(whole_number(fields.get(name)) or 0 for name in reclaimable))


def _processor_quota(group: Path) -> float | None:
    words = (read_text(group / "cpu.max") or "").split()
    if len(words) == 2:
        quota, period = (whole_number(word) for word in words)
    else:
        quota, period = (read_number(group / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return quota / period if quota and quota > 0 and period and period > 0 else None
