"""A service on an engine that fails on request, and one that is sent raw bytes."""

from collections.abc import Iterator

import pytest
from fixtures.faulty_engine import Faults, service_with_faults
from fixtures.raw_http import Edge, running_edge
from fixtures.tiny_models import TinyModels


@pytest.fixture(scope="module")
def faults(tiny: TinyModels) -> Iterator[Faults]:
    with service_with_faults(tiny) as running:
        yield running


@pytest.fixture(scope="module")
def shared_edge(tiny: TinyModels) -> Iterator[Edge]:
    with running_edge(tiny) as edge:
        yield edge


@pytest.fixture
def edge(shared_edge: Edge) -> Iterator[Edge]:
    """The service; afterwards it serves, has told of no error, and has recorded nothing that was not looked at."""
    shared_edge.log.clear()
    yield shared_edge
    assert shared_edge.rows(0) == []
    assert not shared_edge.complaints(), "".join(shared_edge.log[:40])
