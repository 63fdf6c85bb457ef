"""How near the planner's figures are to the engine's own dry runs, and how long a plan takes.

The rows and the generator of their models belong to the tests (tests/fixtures/oracle.py).
"""

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from app.placement.plan import plan
from app.placement.resolve import resolve
from app.placement.suggest import suggest

_TESTS = Path(__file__).resolve().parent.parent / "tests"
_MIB = 1 << 20
_LARGE = "qwen3moe_235b/ncmoe_some"
_PLANS = 200


@dataclass(frozen=True)
class Error:
    """Predicted minus what the engine printed, in MiB; the engine prints whole ones."""

    where: str
    mib: float
    engine_mib: int

    @property
    def is_near(self) -> bool:
        return abs(self.mib) <= max(32, self.engine_mib / 10)


def run() -> None:
    """Print median and worst error per term over all rows, and the time of one plan."""
    oracle = _oracle()
    with tempfile.TemporaryDirectory() as folder:
        models = oracle.SparseFolder(Path(folder))
        terms = _errors(oracle, models)
        print(f"{len(oracle.oracle_rows())} launches of llama.cpp build 11434; errors in MiB")
        for name, errors in terms.items():
            _print_term(name, errors)
        _print_time(oracle, models)
        _print_suggest_time(models)


def _oracle() -> Any:
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    return importlib.import_module("fixtures.oracle")


def _errors(oracle: Any, models: Any) -> dict[str, list[Error]]:
    """The compute of architectures that are declared partial is not judged: a bound is planned for them."""
    found: dict[str, list[Error]] = {"weights": [], "context": [], "compute": []}
    for row in oracle.oracle_rows():
        if row.error is not None:
            continue
        is_partial = bool(models.planned(row.model).shape.unknown)
        for place, predicted, said in oracle.cells(row, oracle.predict(row, models)):
            for at, name in enumerate(found):
                if is_partial and name == "compute":
                    continue
                mib = predicted[at] / _MIB if name == "compute" else predicted[at] // _MIB
                # The engine prints floors: what lies within the same MiB is no error.
                error = 0.0 if int(mib) == said[at] else mib - said[at]
                found[name].append(Error(f"{row.id} {place}", error, said[at]))
    return found


def _print_term(name: str, errors: Sequence[Error]) -> None:
    sizes = sorted(abs(error.mib) for error in errors)
    under = min(errors, key=lambda error: error.mib)
    over = max(errors, key=lambda error: error.mib)
    exact = sum(error.mib == 0 for error in errors) / len(errors)
    near = sum(error.is_near for error in errors) / len(errors)
    print(
        f"  {name:8s} {len(errors)} cells, exact {exact:.1%}, within max(32 MiB, 10 %) {near:.1%}, "
        f"median {median(sizes):.1f}, p97 {sizes[int(len(sizes) * 0.97)]:.1f}"
    )
    print(f"           most over {over.mib:+.1f} of {over.engine_mib} ({over.where})")
    print(f"           most under {under.mib:+.1f} of {under.engine_mib} ({under.where})")


def _print_time(oracle: Any, models: Any) -> None:
    row = next(row for row in oracle.oracle_rows() if row.id == _LARGE)
    case, options = oracle.case_of(row, models)
    resolved, known = resolve(case), models.planned(row.model)
    print(f"  plan() of {row.model} on two devices, median of {_PLANS}:")
    for text, once in (
        ("with the shape at hand", lambda: plan(case, resolved, options=options, target=known)),
        ("from the header on", lambda: plan(case, resolved, options=options)),
    ):
        print(f"           {text}: {median(_seconds(once)) * 1000:.2f} ms")


def _print_suggest_time(models: Any) -> None:
    planning = importlib.import_module("fixtures.planning")
    asked = planning.question(models, "deepseek3_671b", planning.cards(*(24,) * 8, host_gib=768), None)
    taken = median(_seconds(lambda: suggest(asked.case, asked.replan), times=5))
    print(f"           suggest() of deepseek3_671b for eight devices: {taken * 1000:.0f} ms")


def _seconds(once: Callable[[], object], times: int = _PLANS) -> Iterator[float]:
    for _ in range(times):
        started = time.perf_counter()
        once()
        yield time.perf_counter() - started


if __name__ == "__main__":
    run()
