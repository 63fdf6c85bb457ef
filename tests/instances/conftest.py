"""Checked launches of tiny and of large models on two cards, for the tests of diagnosis; a database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import profile
from fixtures.evidences import launched
from fixtures.oracle import SparseFolder
from fixtures.planning import cards
from fixtures.tiny_models import TinyModels

from app.database import Database
from app.inventory.devices import Machine
from app.launch.report import Launch

Large = Callable[..., Launch]


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> SparseFolder:
    return SparseFolder(tmp_path_factory.mktemp("sparse"))


@pytest.fixture(scope="session")
def large(sparse: SparseFolder) -> Large:
    """Launches of models of real shapes, header-only: a target, a draft, differences from the defaults."""

    known: dict[str, Launch] = {}

    def launch(target: str, draft: str | None = None, on: Machine | None = None, **changes: Any) -> Launch:
        asked = repr((target, draft, on, sorted(changes.items())))
        if asked not in known:
            known[asked] = checked(target, draft, on or cards(24, 24), changes)
        return known[asked]

    def checked(target: str, draft: str | None, on: Machine, changes: dict[str, Any]) -> Launch:
        paths: dict[str, Any] = {"target": {"path": sparse.model(target).path.name}}
        if draft is not None:
            speculation = changes.pop("speculation", {})
            named = {**speculation.get("draft", {}), "path": sparse.model(draft).path.name}
            paths["speculation"] = {**speculation, "draft": named}
        return launched(sparse.folder, profile(**{**paths, **changes}), on, force=True)

    return launch


@pytest.fixture(scope="session")
def drafted(large: Large) -> Launch:
    """A dense target and a drafter with a head of its own on one card."""
    return large(
        "qwen3_8b",
        "dspark_qwen3_8b_head",
        speculation={"method": "dspark", "draft": {"device": "CUDA0"}, "draft_tokens_max": 5},
        placement={"devices": ["CUDA0"], "split_mode": "none"},
        context={"size": 8192},
    )


@pytest.fixture(scope="session")
def hybrid(large: Large) -> Launch:
    """Experts of half the layers on the host, the layers over two cards alike."""
    return large(
        "glm4moe_air",
        on=cards(48, 48),
        placement={"cpu_moe_layers": 24, "tensor_split": [1, 1]},
        context={"size": 16_384},
    )


@pytest.fixture(scope="session")
def plain(tiny: TinyModels) -> Launch:
    """A tiny model on one card, without speculation."""
    wanted = profile(target={"path": tiny.dense_target.name}, context={"size": 2048})
    return launched(tiny.dense_target.parent, wanted, cards(24))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A migrated one of its own for each test."""
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}", linger_seconds=0.01)
    database.migrate()
    database.start()
    yield database
    database.close()
