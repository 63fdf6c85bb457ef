"""Files for the readers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.nvml import build
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


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stub NVML library."""
    folder = build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("no C compiler to build the stub NVML library with")
    return folder
