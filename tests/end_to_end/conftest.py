"""A service on an engine that fails on request."""

from collections.abc import Iterator

import pytest
from fixtures.faulty_engine import Faults, service_with_faults
from fixtures.tiny_models import TinyModels


@pytest.fixture(scope="module")
def faults(tiny: TinyModels) -> Iterator[Faults]:
    with service_with_faults(tiny) as running:
        yield running
