"""The endpoints that are relayed, and what the relay must know of each. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.llama_server.answer_formats import (
    ANTHROPIC,
    CHAT,
    NATIVE,
    OTHER,
    RANKING,
    RESPONSES,
    VECTORS,
    AnswerFormat,
)

UPSTREAM_PREFIX = "/upstream/"


class Endpoint(StrEnum):
    """The kinds of requests that are told apart in rows and series."""

    CHAT_COMPLETIONS = "chat_completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    COMPLETION = "completion"
    INFILL = "infill"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    APPLY_TEMPLATE = "apply_template"
    PROPS = "props"
    SLOTS = "slots"
    LORA_ADAPTERS = "lora_adapters"
    UPSTREAM = "upstream"


COMPUTING = frozenset(
    {
        Endpoint.CHAT_COMPLETIONS,
        Endpoint.COMPLETIONS,
        Endpoint.RESPONSES,
        Endpoint.MESSAGES,
        Endpoint.EMBEDDINGS,
        Endpoint.RERANK,
        Endpoint.COMPLETION,
        Endpoint.INFILL,
    }
)
"""Those that have the model compute: the others take no time that says anything about a profile."""


class Dialect(StrEnum):
    """Whose clients are spoken to: it decides how an error of the relay is told."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Route:
    """What is known of an endpoint before its request is read.

    `body_names_model` says that its body is a JSON object which may name the model; `is_changing` that it changes an
    engine for everybody.
    """

    endpoint: Endpoint
    format: AnswerFormat = OTHER
    body_names_model: bool = True
    is_changing: bool = False


def _posts(route: Route, *paths: str) -> Iterator[tuple[tuple[str, str], Route]]:
    return ((("POST", path), route) for path in paths)


# Control paths of the same names (/models, /metrics, /health) are not here: they win.
ROUTES: Mapping[tuple[str, str], Route] = dict(
    (
        *_posts(Route(Endpoint.CHAT_COMPLETIONS, CHAT), "/v1/chat/completions", "/chat/completions"),
        *_posts(Route(Endpoint.COMPLETIONS, CHAT), "/v1/completions"),
        *_posts(Route(Endpoint.RESPONSES, RESPONSES), "/v1/responses", "/responses"),
        *_posts(Route(Endpoint.MESSAGES, ANTHROPIC), "/v1/messages"),
        *_posts(
            Route(Endpoint.COUNT_TOKENS),
            "/v1/messages/count_tokens",
            "/v1/responses/input_tokens",
            "/responses/input_tokens",
            "/v1/chat/completions/input_tokens",
            "/chat/completions/input_tokens",
        ),
        *_posts(Route(Endpoint.EMBEDDINGS, VECTORS), "/v1/embeddings", "/embeddings", "/embedding"),
        *_posts(Route(Endpoint.RERANK, RANKING), "/v1/rerank", "/v1/reranking", "/rerank", "/reranking"),
        *_posts(Route(Endpoint.COMPLETION, NATIVE), "/completion", "/completions"),
        *_posts(Route(Endpoint.INFILL, NATIVE), "/infill"),
        *_posts(Route(Endpoint.TOKENIZE), "/tokenize"),
        *_posts(Route(Endpoint.DETOKENIZE), "/detokenize"),
        *_posts(Route(Endpoint.APPLY_TEMPLATE), "/apply-template"),
        *_posts(Route(Endpoint.PROPS, body_names_model=False, is_changing=True), "/props"),
        *_posts(Route(Endpoint.LORA_ADAPTERS, body_names_model=False, is_changing=True), "/lora-adapters"),
        (("GET", "/props"), Route(Endpoint.PROPS, body_names_model=False)),
        (("GET", "/slots"), Route(Endpoint.SLOTS, body_names_model=False)),
        (("GET", "/lora-adapters"), Route(Endpoint.LORA_ADAPTERS, body_names_model=False)),
    )
)
_UPSTREAM = Route(Endpoint.UPSTREAM, body_names_model=False)
_READS = frozenset({"GET", "HEAD"})
_LOOKS = frozenset({b"/health", b"/v1/health", b"/metrics", b"/slots", b"/models", b"/v1/models"})
_ANTHROPIC_ENDS = ("/v1/messages", "/v1/messages/count_tokens")


def route_of(method: str, path: str) -> Route | None:
    """The endpoint of a request; None where it is not one that is relayed."""
    return ROUTES.get((method, path)) or (_UPSTREAM if path.startswith(UPSTREAM_PREFIX) else None)


def is_inference(scope: Mapping[str, Any]) -> bool:
    """Whether a relayed request leaves its engine as it is for all others, so that the right to infer is enough.

    Behind /upstream/ that are reads, and the requests that could be made without it.
    """
    method, path = scope["method"], scope["path"]
    if path.startswith(UPSTREAM_PREFIX):
        if method in _READS:
            return True
        # As it came: an encoded slash or question mark must not make one path look like another.
        name, slash, rest = (scope.get("raw_path") or path.encode())[len(UPSTREAM_PREFIX) :].partition(b"/")
        path = (slash + rest).decode("latin-1") if name else ""
    route = ROUTES.get((method, path))
    return route is not None and not route.is_changing


def is_look(method: str, target: bytes) -> bool:
    """Whether a request for this path of an engine only looks: a health check, a scrape, a list. It brings none up."""
    return method in _READS and target.partition(b"?")[0] in _LOOKS


def dialect_of(path: str) -> Dialect:
    """Who sends requests to such a path."""
    return Dialect.ANTHROPIC if path.endswith(_ANTHROPIC_ENDS) else Dialect.OPENAI
