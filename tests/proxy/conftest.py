import asyncio
from collections.abc import Callable

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The service runs on uvloop, and on plain asyncio where there is none."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
