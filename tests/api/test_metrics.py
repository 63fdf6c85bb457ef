"""GET /metrics in both formats."""

import asyncio
import threading
from collections.abc import Iterable

import httpx
import pytest
from fakes.finished_requests import finished
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from app.api.metrics import router
from app.metrics.collectors import MetricsRegistry
from app.metrics.instruments import Instruments


@pytest.fixture
def client() -> TestClient:
    registry = MetricsRegistry()
    Instruments(registry).on_request_finished(finished())
    app = FastAPI()
    app.include_router(router(registry))
    return TestClient(app)


@pytest.mark.parametrize("accept", ["*/*", "text/plain;version=0.0.4", "application/openmetrics-text; version=x"])
def test_plain_text_unless_asked(client: TestClient, accept: str) -> None:
    answer = client.get("/metrics", headers={"Accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in parse_text(answer.text)}
    (sample,) = families["paceline_requests"].samples
    assert sample.labels == {"profile": "gemma", "endpoint": "chat_completions", "outcome": "completed"}


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0", "99.1.0"])
def test_any_newer_openmetrics_is_answered(client: TestClient, version: str) -> None:
    answer = client.get("/metrics", headers={"Accept": f"application/openmetrics-text; version={version}"})
    assert answer.status_code == 200
    assert answer.text.endswith("# EOF\n")


def test_openmetrics_when_asked(client: TestClient) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = client.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert answer.text.endswith("# EOF\n")
    assert "_created" not in answer.text
    assert "paceline_requests" in {family.name for family in parse_openmetrics(answer.text)}
    assert "request_id=" in answer.text


class SlowCollector(Collector):
    """Tells nothing until it may."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def collect(self) -> Iterable[Metric]:
        assert self.may_go_on.wait(10)
        return ()


async def test_a_scrape_does_not_hold_up_the_event_loop() -> None:
    registry, slow = MetricsRegistry(), SlowCollector()
    registry.register(slow)
    app = FastAPI()
    app.include_router(router(registry))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        scrape = asyncio.create_task(client.get("/metrics"))
        # On the loop itself it would wait for this in vain.
        asyncio.get_running_loop().call_later(0.01, slow.may_go_on.set)
        assert (await scrape).status_code == 200
