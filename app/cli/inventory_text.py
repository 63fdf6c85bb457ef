"""Devices and models as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.render import bytes_text
from app.inventory.gguf_cursor import shown
from app.inventory.model_scan import ModelShape
from app.inventory.models import ModelFile
from app.placement.amounts import counted

_NOT_KNOWN = "-"
_WIDE = 1_000
_GAP = 2
_MODEL_COLUMNS = ("model", "kind", "architecture", "size", "type", "layers", "experts", "context", "vocabulary")
_LEAST_FIRST = ("vocabulary", "experts", "layers", "context", "architecture", "type", "kind", "size")


def print_devices(console: Console, seen: Mapping[str, Any]) -> None:
    """Every device with its memory and live figures, the host, then what is wrong."""
    if seen["devices"]:
        print_table(console, _devices_table(seen))
    else:
        console.print("no devices: the host computes")
    host = seen["host"]
    cores = f"{_NOT_KNOWN} cores" if host["physical_cores"] is None else counted(host["physical_cores"], "core")
    console.print(
        f"host: {_bytes(host['available_bytes'])} of {_bytes(host['total_bytes'])} available, {cores}",
        soft_wrap=True,
    )
    for name, usage in seen["usage"].items():
        for holder in usage["holders"]:
            whose = f"{holder['profile_id']} (instance {holder['instance_id']})" if holder["profile_id"] else "not ours"
            console.print(f"{name}: pid {holder['pid']} holds {_bytes(holder['used_bytes'])}, {whose}", soft_wrap=True)
        if usage["mismatch"]:
            console.print(f"{name}: {usage['mismatch']}", style="yellow", soft_wrap=True)
        if usage["is_stale"]:
            console.print(f"{name}: as it was before our engines took memory of it", style="yellow", soft_wrap=True)
    for name in seen["unlisted"]:
        console.print(f"the driver shows {name}, which the engine does not list", style="yellow", soft_wrap=True)
    for problem in seen["problems"]:
        console.print(problem, style="red", soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """On a terminal within its width; a file gets every row in one line."""
    if not console.is_terminal:
        console.width = max(console.width, _WIDE)
    console.print(table)


def print_models(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Models that can be read, one a line. On a terminal that is too narrow the least important columns are missing.

    A name is there to be copied: it is never broken, however long.
    """
    rows = [_model_cells(model["path"], model["shape"]) for model in found]
    columns = [name for name in _MODEL_COLUMNS if rows]
    widths = {name: max(cell_len(text) for text in (name, *(row[name] for row in rows))) for name in columns}
    for name in _LEAST_FIRST:
        if console.is_terminal and sum(widths[kept] + _GAP for kept in columns) - _GAP > console.width:
            columns.remove(name)
    for line in ({name: name for name in columns}, *rows):
        text = "".join(f"{line[name]}{' ' * (widths[name] + _GAP - cell_len(line[name]))}" for name in columns)
        console.print(Text(text.rstrip(), style="bold" if line not in rows else ""), soft_wrap=True)


def _model_cells(path: str, shape: Mapping[str, Any]) -> dict[str, str]:
    return {
        "model": path,
        "kind": shape["kind"],
        "architecture": shape["architecture"],
        "size": bytes_text(shape["size_bytes"]),
        "type": shape["quantisation"] or shape["largest_type"] or _NOT_KNOWN,
        "layers": _layers(shape["block_count"], shape["nextn_layers"]),
        "experts": str(shape["expert_count"] or _NOT_KNOWN),
        "context": _count(shape["context_length_trained"]),
        "vocabulary": _count(shape["vocabulary_size"]),
    }


def print_model(console: Console, model: ModelFile, shape: ModelShape, bytes_by_type: Mapping[str, int]) -> None:
    """One model, a fact a line."""
    facts = {
        "name": shape.name or _NOT_KNOWN,
        "kind": shape.kind,
        "architecture": shape.architecture,
        "size": f"{bytes_text(shape.size_bytes)} in {counted(shape.parts, 'file')}",
        "quantisation": shape.quantisation or _NOT_KNOWN,
        "layers": _layers(shape.block_count, shape.nextn_layers),
        "experts": f"{shape.expert_count}, {shape.expert_used_count} used" if shape.expert_count else "none",
        "embedding": _count(shape.embedding_length),
        "context": _count(shape.context_length_trained),
        "vocabulary": f"{_count(shape.vocabulary_size)} ({shape.tokenizer_model or 'no tokenizer'})",
        "own embeddings": _yes(shape.has_own_embeddings),
        "own head": _yes(shape.has_own_head),
        "chat template": _yes(shape.has_chat_template),
        "tensors": str(len(model.tensors)),
    }
    if shape.nextn_layers:
        facts["MTP weights"] = _yes(shape.has_nextn_tensors)
    if shape.block_size is not None:
        facts["draft block"] = str(shape.block_size)
    for name, n_bytes in sorted(bytes_by_type.items(), key=lambda entry: -entry[1]):
        facts[f"in {name}"] = bytes_text(n_bytes)
    for name, value in facts.items():
        console.print(f"{name:<16}{shown(value)}", soft_wrap=True)
    if not shape.has_loadable_names:
        console.print(
            "llama.cpp does not find the parts of this set: name them NAME-00001-of-0000N.gguf", style="yellow"
        )


def _devices_table(seen: Mapping[str, Any]) -> Table:
    table = _table("device", "is", "free", "total", "reserved", "busy", "°C", "W", "link")
    for device in seen["devices"]:
        live, usage = seen["live"].get(device["name"], {}), seen["usage"].get(device["name"], {})
        utilisation, pcie = live.get("utilisation"), live.get("pcie")
        table.add_row(
            device["name"],
            device["description"] + (", shares the host's memory" if device["integrated"] else ""),
            bytes_text(device["free_bytes"]),
            bytes_text(device["total_bytes"]),
            bytes_text(usage["reserved_bytes"]) if usage.get("reserved_bytes") else _NOT_KNOWN,
            _NOT_KNOWN if utilisation is None else f"{utilisation['busy_rate']:.0%}",
            _count(live.get("temperature_celsius")),
            _NOT_KNOWN if live.get("power_watts") is None else f"{live['power_watts']:.0f}",
            _NOT_KNOWN if pcie is None else f"PCIe {pcie['generation_max']} x{pcie['width']}",
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    return table


def _layers(block_count: int, nextn_layers: int) -> str:
    return f"{block_count - nextn_layers} + {nextn_layers} MTP" if nextn_layers else str(block_count)


def _bytes(count: int | None) -> str:
    return "an unknown amount" if count is None else bytes_text(count)


def _count(value: int | None) -> str:
    return _NOT_KNOWN if value is None else str(value)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
