"""The planner against the engine's own dry runs: hundreds of launches of models of real shapes."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fixtures.oracle import HOST, MIB, Row, SparseFolder, case_of, cells, oracle_rows, predict

from app.findings import Severity
from app.placement.plan import plan
from app.placement.resolve import resolve
from app.placement.rules import judge

_HOST_WEIGHTS_WITHIN_MIB = 2
_COMPUTE_WITHIN_MIB, _COMPUTE_WITHIN_SHARE = 32, 0.10
_COMPUTE_CELLS_WITHIN = 0.97
_COMPUTE_UNDER_MOST_MIB = 64
_HOST_OF_EXPERTS_WITHIN_MIB = 2


@dataclass(frozen=True)
class Cell:
    """One figure of one place."""

    row: Row
    place: str
    predicted_bytes: tuple[int, int, int]
    engine_mib: tuple[int, int, int]

    @property
    def compute_error_mib(self) -> float:
        """Positive where too much was predicted."""
        return self.predicted_bytes[2] / MIB - self.engine_mib[2]

    @property
    def is_compute_within(self) -> bool:
        return abs(self.compute_error_mib) <= max(_COMPUTE_WITHIN_MIB, _COMPUTE_WITHIN_SHARE * self.engine_mib[2]) + 1

    def __str__(self) -> str:
        shown = [round(n_bytes / MIB, 1) for n_bytes in self.predicted_bytes]
        return f"{self.row.id} {self.place}: predicted {shown}, the engine says {list(self.engine_mib)}"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SparseFolder:
    return SparseFolder(tmp_path_factory.mktemp("sparse"))


@pytest.fixture(scope="module")
def all_cells(models: SparseFolder) -> list[Cell]:
    return list(_cells(models, is_dry_run=True))


@pytest.fixture(scope="module")
def known_cells(all_cells: list[Cell], models: SparseFolder) -> list[Cell]:
    """Those of architectures that the planner does not declare partial."""
    return [cell for cell in all_cells if not models.planned(cell.row.model).shape.unknown]


def _cells(models: SparseFolder, *, is_dry_run: bool) -> Iterator[Cell]:
    for row in oracle_rows():
        if row.error is None:
            for place, predicted, said in cells(row, predict(row, models, is_dry_run=is_dry_run)):
                yield Cell(row, place, predicted, said)


def test_the_rows_are_there() -> None:
    rows = oracle_rows()
    assert sum(row.source == "given" for row in rows) == 130
    assert len({row.model for row in rows}) > 20
    assert len({row.id for row in rows}) == len(rows)


def test_weights_and_context_are_exact(all_cells: list[Cell]) -> None:
    wrong = []
    for cell in all_cells:
        weights, context = (n_bytes // MIB for n_bytes in cell.predicted_bytes[:2])
        slack = _HOST_WEIGHTS_WITHIN_MIB if cell.place == HOST else 0
        if abs(weights - cell.engine_mib[0]) > slack or context != cell.engine_mib[1]:
            wrong.append(str(cell))
    assert not wrong


@pytest.mark.parametrize("source", ["given", "measured"])
def test_compute_is_near(known_cells: list[Cell], source: str) -> None:
    judged = [cell for cell in known_cells if cell.row.source == source]
    outside = [str(cell) for cell in judged if not cell.is_compute_within]
    assert len(outside) <= (1 - _COMPUTE_CELLS_WITHIN) * len(judged), "\n".join(outside)


def test_compute_is_never_far_under(known_cells: list[Cell]) -> None:
    under = [str(cell) for cell in known_cells if cell.compute_error_mib < -_COMPUTE_UNDER_MOST_MIB]
    assert not under


def test_the_host_that_runs_experts_is_packed_as_the_engine_packs_it(known_cells: list[Cell]) -> None:
    """Every layer is on a device, and the experts of some are on the host."""
    cells_of_experts = [
        cell
        for cell in known_cells
        if cell.place == HOST
        and cell.row.part == "target"
        and "cpu-moe" in cell.row.flags
        and "-ngl 999" in cell.row.flags
    ]
    assert len({cell.row.model for cell in cells_of_experts}) > 15
    wrong = [str(cell) for cell in cells_of_experts if not -1 <= cell.compute_error_mib <= _HOST_OF_EXPERTS_WITHIN_MIB]
    assert not wrong


def test_what_is_not_modelled_is_bounded_above(models: SparseFolder) -> None:
    """For such architectures the plan of a real load lies above what the dry run says."""
    rows = [row for row in oracle_rows() if row.error is None and models.planned(row.model).shape.unknown]
    assert {row.model for row in rows} == {"deepseek4", "nemotron_h_9b"}
    under = [
        str(cell)
        for row in rows
        for place, predicted, said in cells(row, predict(row, models, is_dry_run=False))
        if (cell := Cell(row, place, predicted, said)).compute_error_mib < 0 and said[2]
    ]
    assert not under


def test_a_launch_that_the_engine_refuses_is_refused(models: SparseFolder) -> None:
    refused = [row for row in oracle_rows() if row.error is not None]
    assert refused
    for row in refused:
        case, _ = case_of(row, models)
        by_rule = any(finding.severity is Severity.ERROR for finding in judge(case))
        assert by_rule or plan(case, resolve(case)).impossible, row.id


def test_what_is_not_modelled_is_said(models: SparseFolder) -> None:
    assert any("indexer" in what for what in models.planned("deepseek4").shape.unknown)
    assert models.planned("qwen35moe_35b").shape.unknown == ()
