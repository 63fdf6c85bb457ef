import re
from pathlib import Path

import pytest

from app.proxy.endpoints import COMPUTING, ROUTES, Dialect, Endpoint, dialect_of, is_inference, route_of


@pytest.mark.parametrize(
    ("method", "path", "endpoint"),
    [
        ("POST", "/v1/chat/completions", Endpoint.CHAT_COMPLETIONS),
        ("POST", "/v1/completions", Endpoint.COMPLETIONS),
        ("POST", "/completions", Endpoint.COMPLETION),
        ("POST", "/v1/reranking", Endpoint.RERANK),
        ("POST", "/embedding", Endpoint.EMBEDDINGS),
        ("GET", "/slots", Endpoint.SLOTS),
        ("DELETE", "/upstream/a/b", Endpoint.UPSTREAM),
        ("GET", "/upstream/", Endpoint.UPSTREAM),
        ("GET", "/upstream", None),
        ("POST", "/slots", None),
        ("GET", "/models", None),
        ("GET", "/metrics", None),
        ("GET", "/health", None),
        ("GET", "/v1/completions", None),
    ],
)
def test_the_endpoint_of_a_request(method: str, path: str, endpoint: Endpoint | None) -> None:
    route = route_of(method, path)
    assert (route.endpoint if route else None) == endpoint


@pytest.mark.parametrize(
    ("method", "path", "permitted"),
    [
        ("POST", "/v1/messages", True),
        ("GET", "/props", True),
        ("POST", "/props", False),
        ("POST", "/lora-adapters", False),
        ("GET", "/upstream/a/", True),
        ("HEAD", "/upstream/a/slots", True),
        ("POST", "/upstream/a/v1/chat/completions", True),
        ("POST", "/upstream/org%2Fa/completion", True),
        ("POST", "/upstream/a/lora-adapters", False),
        ("POST", "/upstream/a/slots/0", False),
        ("POST", "/upstream/a/slots%2F0%3Faction=erase%26/completion", False),
        ("POST", "/upstream/a/slots%2Fcompletion", False),
        ("POST", "/upstream//completion", False),
        ("POST", "/upstream/completion", False),
        ("DELETE", "/upstream/a/v1/stream", False),
        ("OPTIONS", "/upstream/a/", False),
        ("POST", "/profiles", False),
    ],
)
def test_what_the_right_to_infer_permits(method: str, path: str, permitted: bool) -> None:
    scope = {"method": method, "path": path.replace("%2F", "/"), "raw_path": path.encode()}
    assert is_inference(scope) is permitted


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", Dialect.ANTHROPIC),
        ("/v1/messages/count_tokens", Dialect.ANTHROPIC),
        ("/upstream/a/v1/messages", Dialect.ANTHROPIC),
        ("/v1/chat/completions", Dialect.OPENAI),
        ("/v1/messages/other", Dialect.OPENAI),
    ],
)
def test_whose_clients_are_spoken_to(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect


def test_every_endpoint_can_be_asked_for() -> None:
    assert {route.endpoint for route in ROUTES.values()} | {Endpoint.UPSTREAM} == set(Endpoint)


def test_what_may_stream_computes() -> None:
    assert {route.endpoint for route in ROUTES.values() if route.format.may_stream} <= COMPUTING


def test_the_guide_has_every_endpoint() -> None:
    guide = Path(__file__).parents[2].joinpath("docs/guide.md").read_text(encoding="utf-8")
    section = guide[guide.index("\n## Requests\n") : guide.index("\n### Metrics\n")]
    words = set(re.findall(r"`(?:GET |POST )?([a-z_/-][a-z0-9_/-]*)`", section))
    assert {endpoint.value for endpoint in Endpoint} <= words
    assert {path for _, path in ROUTES} - {"/responses/input_tokens", "/chat/completions/input_tokens"} <= words
