"""The plan's figures beside the engine's own: one table, and what they disagree on. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app import findings
from app.findings import Finding
from app.launch.witness import Witness
from app.llama_server.breakdown import Breakdown, Figures

HOST = "Host"
Table = Mapping[str, Mapping[str, int]]

_MIB = 1 << 20
_EXACT_BYTES = 2 * _MIB
_COMPUTE_BYTES = 32 * _MIB
_COMPUTE_SHARE = 10


@dataclass(frozen=True, slots=True)
class Reconciled:
    """`table` is bytes by device (or `Host`) and term, the engine's where it saw them."""

    table: Mapping[str, Mapping[str, int]]
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class _Figure:
    """One figure of the engine and the terms of the plan that make it up; the first takes what is left."""

    name: str
    terms: tuple[str, ...]
    by_device: Mapping[str, int]
    is_compute: bool = False
    blind: bool = False


def reconcile(
    analytic: Table, witness: Witness, *, excess_compute_bytes: Mapping[str, int] | None = None
) -> Reconciled:
    """Put the engine's figures in the place of the plan's, and say where they are further apart than allowed.

    `analytic` is bytes by device and term, the host under `Host`. The engine prints whole MiB rounded down: a planned
    figure inside that MiB stays as it is. `excess_compute_bytes` is what a dry run is known to count more than a load
    (less, where negative) of the target's compute buffers: with pipelining, four hidden-state inputs on each device
    that follows another.
    """
    excess = excess_compute_bytes or {}
    table = {device: dict(terms) for device, terms in analytic.items()}
    found: list[Finding] = []
    for told in _figures(witness, excess):
        doubt = _doubt(told, analytic)
        found += [doubt] if doubt else []
        figure = replace(told, blind=told.blind or doubt is not None)
        for device in dict.fromkeys((*analytic, *figure.by_device)):
            planned = sum(table.get(device, {}).get(term, 0) for term in figure.terms)
            said = figure.by_device.get(device, 0)
            settled = min(max(planned, said), said + _MIB)
            if figure.blind:
                settled = max(settled, planned)
            if abs(planned - settled) > _tolerance(figure, said):
                found.append(_disagreement(device, figure, planned, said))
            if planned != settled:
                _settle(table.setdefault(device, {}), figure.terms, settled)
    return Reconciled(table, found)


def _doubt(figure: _Figure, analytic: Table) -> Finding | None:
    """What the headers prove is there: of weights, an engine that tells less in all has not told all."""
    told = sum(figure.by_device.values())
    planned = sum(terms.get(term, 0) for terms in analytic.values() for term in figure.terms)
    is_short = "weights" in figure.name and told + (len(analytic) + 1) * _EXACT_BYTES < planned
    if not is_short and all(said >= 0 for said in figure.by_device.values()):
        return None
    return _disagreement("all devices", figure, planned, told, used="plan's")


def _figures(witness: Witness, excess: Mapping[str, int]) -> Iterator[_Figure]:
    target, blind = witness.target, witness.blind
    # The block that an MTP context runs on is loaded with the target and counted there.
    of_target = ("weights", "draft_weights") if witness.mtp else ("weights",)
    compute = {device: max(0, said - excess.get(device, 0)) for device, said in _column(target, "compute").items()}
    yield _Figure("weights", of_target, _column(target, "model"), blind="weights" in blind)
    yield _Figure("context", ("kv_cache", "recurrent_state"), _column(target, "context"), blind="kv_cache" in blind)
    yield _Figure("compute buffers", ("compute",), compute, is_compute=True, blind="compute" in blind)
    draft = witness.draft
    if draft:
        yield _Figure("draft weights", ("draft_weights",), _column(draft, "model"), blind="draft_weights" in blind)
    extra = draft or witness.mtp
    if extra:
        name = "draft" if draft else "MTP"
        context, buffers = _column(extra, "context"), _column(extra, "compute")
        yield _Figure(f"{name} context", ("draft_kv_cache",), context, blind="draft_kv_cache" in blind)
        yield _Figure(f"{name} compute buffers", ("draft_compute",), buffers, True, "draft_compute" in blind)


def _column(breakdown: Breakdown, figure: str) -> dict[str, int]:
    def of(figures: Figures) -> int:
        match figure:
            case "model":
                return figures.model_bytes
            case "context":
                return figures.context_bytes
            case _:
                return figures.compute_bytes

    return {**{device: of(figures) for device, figures in breakdown.devices.items()}, HOST: of(breakdown.host)}


def _tolerance(figure: _Figure, said: int) -> int:
    return max(_COMPUTE_BYTES, said // _COMPUTE_SHARE) if figure.is_compute else _EXACT_BYTES


def _settle(terms: dict[str, int], names: tuple[str, ...], total: int) -> None:
    """Divide `total` among the terms: the later ones keep what they have, as far as it goes."""
    first, *others = names
    rest = total
    for name in others:
        if name in terms:
            terms[name] = min(terms[name], rest)
            rest -= terms[name]
    terms[first] = rest


def _disagreement(device: str, figure: _Figure, planned: int, said: int, used: str = "engine's") -> Finding:
    ours, theirs = (f"{value / _MIB:.0f} MiB" for value in (planned, said))
    return findings.warning(
        "plan-disagrees",
        f"{device}: the plan gives {ours} of {figure.name}, the engine's own dry run {theirs}. "
        f"The {used} figure is used.",
        expected=ours,
        observed=theirs,
        evidence="dry run of the engine",
    )
