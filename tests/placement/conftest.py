"""Models of real shapes, header-only, for every test of placement that wants them."""

import pytest
from fixtures.oracle import SparseFolder


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> SparseFolder:
    return SparseFolder(tmp_path_factory.mktemp("sparse"))
