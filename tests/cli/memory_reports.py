"""Placement reports as the API gives them, of machines that no test has."""

from collections.abc import Mapping, Sequence
from typing import Any

GIB, MIB = 1 << 30, 1 << 20


def device(
    name: str,
    *,
    total_mib: int,
    free_mib: int,
    margin_mib: int = 1024,
    reserved_mib: int = 0,
    **terms_mib: int,
) -> dict[str, Any]:
    required_mib = sum(terms_mib.values())
    return {
        "name": name,
        "total_bytes": total_mib * MIB,
        "free_bytes": free_mib * MIB,
        "reserved_bytes": reserved_mib * MIB,
        "margin_bytes": margin_mib * MIB,
        "required_bytes": required_mib * MIB,
        "headroom_bytes": (free_mib - reserved_mib - margin_mib - required_mib) * MIB,
        "terms": {name: size * MIB for name, size in terms_mib.items()},
    }


def host(*, available_mib: int | None, mapped_mib: int = 0, reserved_mib: int = 0, **terms_mib: int) -> dict[str, Any]:
    required_mib = sum(terms_mib.values())
    return {
        "available_bytes": None if available_mib is None else available_mib * MIB,
        "reserved_bytes": reserved_mib * MIB,
        "required_bytes": required_mib * MIB,
        "mapped_bytes": mapped_mib * MIB,
        "headroom_bytes": None if available_mib is None else (available_mib - reserved_mib - required_mib) * MIB,
        "terms": {name: size * MIB for name, size in terms_mib.items()},
    }


def report(
    devices: Sequence[Mapping[str, Any]],
    on_host: Mapping[str, Any],
    layers: Sequence[tuple[str, int, int, int]] = (),
    *,
    verdict: str = "fits",
    partial: Sequence[str] = (),
    findings: Sequence[Mapping[str, Any]] = (),
    source: str = "analytic",
    **resolved: Any,
) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "estimate_source": source,
        "partial": list(partial),
        "devices": list(devices),
        "host": dict(on_host),
        "layers": [dict(zip(("device", "first", "last", "experts_on_host"), span, strict=True)) for span in layers],
        "resolved": {"output_device": "host", "draft_device": None, "draft_layers": None, **resolved},
        "residency": {"evict": [], "wait": False},
        "findings": list(findings),
        "argv": ["llama-server", "-m", "target.gguf"],
        "env": {},
    }


def hybrid() -> dict[str, Any]:
    """A mixture of experts on two cards, some experts on the host, and a DSpark draft beside the output."""
    return report(
        [
            device("CUDA0", total_mib=32606, free_mib=31300, weights=21900, kv_cache=1536, recurrent_state=36,
                   compute=1100, overhead=620),
            device("CUDA1", total_mib=32606, free_mib=32100, weights=19800, kv_cache=1408, recurrent_state=30,
                   compute=2100, draft_weights=3300, draft_kv_cache=512, draft_compute=610, overhead=620),
        ],
        host(available_mib=118000, mapped_mib=41000, weights=42800, compute=60, host_caches=8192),
        [("CUDA0", 0, 23, 14), ("CUDA1", 24, 47, 0)],
        source="engine",
        output_device="CUDA1",
        draft_device="CUDA1",
        draft_layers="all",
    )  # fmt: skip


def overfull() -> dict[str, Any]:
    """The default split gives the last card too much; somebody holds memory of it and a launch has some promised."""
    too_much = {
        "rule": "device-memory", "severity": "error", "message": "CUDA1 has no room: 28 GiB are needed.",
        "expected": "at most 20 GiB", "observed": "28 GiB", "evidence": "the plan", "overridable": True,
        "fixes": [
            {"description": "shares that fit", "patch": {"placement": {"tensor_split": [26, 14]}},
             "effect_bytes": 9 * GIB},
            {"description": "a shorter context", "patch": {"context": {"size": 8192}}, "effect_bytes": 8 * GIB},
        ],
    }  # fmt: skip
    worth_knowing = {
        "rule": "draft-tokens-clamped", "severity": "info", "message": "Drafts have 5 tokens.", "expected": "",
        "observed": "", "evidence": "", "overridable": False, "fixes": [],
    }  # fmt: skip
    return report(
        [
            device("CUDA0", total_mib=24080, free_mib=23650, weights=15000, kv_cache=1536, compute=900, overhead=500),
            device("CUDA1", total_mib=24080, free_mib=21500, reserved_mib=2048, weights=21900, kv_cache=3072,
                   compute=2900, overhead=500),
        ],
        host(available_mib=60000, weights=600, compute=60, host_caches=8192, mapped_mib=600),
        [("CUDA0", 0, 18, 0), ("CUDA1", 19, 39, 0)],
        verdict="refused",
        findings=[worth_knowing, too_much],
        output_device="CUDA1",
    )  # fmt: skip


def one_device() -> dict[str, Any]:
    return report(
        [device("Vulkan0", total_mib=8176, free_mib=7400, weights=4300, kv_cache=896, compute=300, overhead=260)],
        host(available_mib=12000, weights=300, mapped_mib=300, compute=20, host_caches=1500),
        [("Vulkan0", 0, 31, 0)],
        output_device="Vulkan0",
    )


def cpu_only() -> dict[str, Any]:
    """The demo: a quarter of a GiB in a machine of 125."""
    return report(
        [],
        host(available_mib=121300, weights=241, mapped_mib=241, kv_cache=36, compute=68, host_caches=8192),
        [("host", 0, 17, 0)],
        verdict="fits_with_warnings",
    )


def unknown_memory() -> dict[str, Any]:
    """A device of another machine that does not tell its memory, and an architecture that is not modelled."""
    return report(
        [
            device("RPC[192.168.178.21:50052]", total_mib=0, free_mib=0, weights=9000, kv_cache=800, compute=2500),
            device("CUDA0", total_mib=24080, free_mib=23650),
        ],
        host(available_mib=None, weights=400, mapped_mib=400, compute=33),
        [("RPC[192.168.178.21:50052]", 0, 42, 0)],
        verdict="fits_with_warnings",
        partial=["deepseek4: its compute buffers", "the memory of RPC[192.168.178.21:50052] is not known"],
        output_device="RPC[192.168.178.21:50052]",
    )


def mapped_over() -> dict[str, Any]:
    """More weights on the host than it has memory: slow, and possible."""
    return report(
        [device("CUDA0", total_mib=24080, free_mib=23650, weights=9000, kv_cache=2000, compute=1500, overhead=500)],
        host(available_mib=60000, mapped_mib=71000, weights=71000, compute=60, host_caches=2048),
        [("CUDA0", 0, 60, 58)],
        verdict="fits_with_warnings",
        output_device="CUDA0",
    )


def eight() -> dict[str, Any]:
    """Eight cards: the figures need more than one table in a narrow window."""
    cards = [
        device(f"CUDA{at}", total_mib=81559, free_mib=80900, weights=61000, kv_cache=6000, compute=1800, overhead=700)
        for at in range(8)
    ]
    return report(
        cards,
        host(available_mib=900000, weights=1800, mapped_mib=1800, compute=200, host_caches=8192),
        [(f"CUDA{at}", 12 * at, 12 * at + 11, 0) for at in range(8)],
        output_device="CUDA7",
    )
