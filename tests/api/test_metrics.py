"""GET /metrics in both formats."""

import pytest
from fakes.finished_requests import finished
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

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
