"""GET /metrics."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from app.metrics.exposition import openmetrics, plain_text

_KINDS = ("text/plain", "application/openmetrics-text")


def router(registry: CollectorRegistry) -> APIRouter:
    """The series of `registry`, as Prometheus text, or as OpenMetrics where the scraper prefers that.

    They are read and written in a thread of their own, so that no stream waits for a scrape.
    """
    routes = APIRouter(tags=["metrics"])

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in _KINDS}}},
    )
    def read_metrics(request: Request) -> Response:
        """Series of requests, instances and devices, for Prometheus."""
        try:
            _, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # the library's answer to a version in Accept that is none
            _, content_type = choose_encoder("")
        write = openmetrics if "openmetrics" in content_type else plain_text
        # The plain Response would append a second charset.
        return Response(write(registry.collect()), headers={"Content-Type": content_type})

    return routes
