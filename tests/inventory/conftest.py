"""Files for the readers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.tiny_models import TinyModels, write_all


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "hand-made.gguf"
        path.write_bytes(content)
        return path

    return write


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return write_all(tmp_path_factory.mktemp("tiny"))
