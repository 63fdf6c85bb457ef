"""GET /metrics."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

_KINDS = ("text/plain", "application/openmetrics-text")


def router(registry: CollectorRegistry) -> APIRouter:
    """The series of `registry`, as Prometheus text, or as OpenMetrics where the scraper prefers that."""
    routes = APIRouter(tags=["metrics"])

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in _KINDS}}},
    )
    def read_metrics(request: Request) -> Response:
        """Series of requests, instances and devices, for Prometheus."""
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # the library's answer to a version in Accept that is none
            encode, content_type = choose_encoder("")
        body = encode(registry)
        # The plain Response would append a second charset.
        return Response(body, headers={"Content-Type": content_type})

    return routes
