"""Amounts as findings and people's pictures write them."""

from collections.abc import Mapping

_MIB = 1 << 20


def counted(count: int, noun: str) -> str:
    """`1 slot`, `2 slots`: `noun` in the singular, one whose plural ends in s."""
    return f"{count} {noun}{'' if abs(count) == 1 else 's'}"


def mib(n_bytes: int) -> str:
    """Whole MiB; less than one, or a shortage of less, in bytes."""
    if 0 < abs(n_bytes) < _MIB:
        return counted(n_bytes, "byte")
    whole = abs(n_bytes) // _MIB
    return f"{'-' if n_bytes < 0 else ''}{whole:,} MiB"


def listed(terms: Mapping[str, int]) -> str:
    """Every term that takes anything, the largest first."""
    taken = sorted(((n_bytes, name) for name, n_bytes in terms.items() if n_bytes), reverse=True)
    return ", ".join(f"{name} {mib(n_bytes)}" for n_bytes, name in taken) or "nothing"
