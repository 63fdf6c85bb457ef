"""The OpenAPI document: what FastAPI gathers from the routes, and what holds for every operation besides."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from app.api.relayed import TAG as RELAYED

_PROBLEM = "application/problem+json"
_EVENTS = "text/event-stream"
# These answer whatever else is down, or say themselves what is.
_ALWAYS_THERE = frozenset({"/health", "/metrics", "/presets", "/ready", "/version"})

# What every operation can meet, by status; an operation that knows better says so itself.
_SITUATIONS = {
    "400": "the body cannot be read, or is of another content type",
    "401": "a key is needed, or the one that was shown is not known",
    "403": "the key, or the page that asks, may not do this",
    "404": "there is nothing of that name",
    "413": "the body is too large",
    "422": "something in the request is not valid; `detail` names it",
    "503": "the engine or the database cannot be had now",
}
_CHALLENGE = {"WWW-Authenticate": {"description": "always `Bearer`", "schema": {"type": "string"}}}


class Problem(BaseModel):
    """What went wrong (RFC 9457). `code` is the stable name of the situation; members besides depend on it."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str


def describe(app: FastAPI) -> None:
    """Let the document of `app` say of errors and keys what is so; FastAPI knows nothing of either."""
    gather = app.openapi
    completed: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        if not completed:
            completed.append(_completed(gather()))
        return completed[0]

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema()
    components["responses"] = {_name(status): _problem(text) for status, text in _SITUATIONS.items()}
    components["responses"][_name("401")]["headers"] = _CHALLENGE
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "a key, as clients of OpenAI send it"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "a key, as Anthropic's do"},
    }
    # The last: without keys everything is open.
    document["security"] = [{"bearer": []}, {"x-api-key": []}, {}]
    for path, item in document["paths"].items():
        for operation in item.values():
            if RELAYED not in operation.get("tags", ()):
                _complete(path, operation)
    return document


def _complete(path: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status, response in responses.items():
        if status >= "400" and "content" not in response:
            response.update(_problem(response["description"]))
        # Other programs take a schema here for that of an event.
        if _EVENTS in response.get("content", {}):
            response["content"][_EVENTS] = {}
    for status in _possible(path, operation):
        responses.setdefault(status, {"$ref": f"#/components/responses/{_name(status)}"})
    operation["responses"] = dict(sorted(responses.items()))


def _possible(path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from ("401", "403")
    if "requestBody" in operation:
        yield from ("400", "413")
    if "{" in path:
        yield "404"
    if "requestBody" in operation or any(given["in"] != "path" for given in operation.get("parameters", ())):
        yield "422"
    if path not in _ALWAYS_THERE:
        yield "503"


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {_PROBLEM: {"schema": schema}}}


def _name(status: str) -> str:
    return f"Problem{status}"
