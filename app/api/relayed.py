"""The endpoints of the relay as routes, so that the OpenAPI document and answers of 405 know them.

The gate gives their requests to the relay before they come here.
"""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Response

from app.proxy.endpoints import ROUTES, UPSTREAM_PREFIX, Endpoint

TAG: Final = "inference"

_ABOUT = {
    Endpoint.CHAT_COMPLETIONS: "Chat completions, as OpenAI has them.",
    Endpoint.COMPLETIONS: "Text completions, as OpenAI has them.",
    Endpoint.RESPONSES: "Responses, as OpenAI has them.",
    Endpoint.MESSAGES: "Messages, as Anthropic has them.",
    Endpoint.COUNT_TOKENS: "How many tokens a prompt has.",
    Endpoint.EMBEDDINGS: "Vectors for texts.",
    Endpoint.RERANK: "Documents by how well they answer a query.",
    Endpoint.COMPLETION: "Text completions, as llama-server has them.",
    Endpoint.INFILL: "Code between a prefix and a suffix.",
    Endpoint.TOKENIZE: "A text as tokens.",
    Endpoint.DETOKENIZE: "Tokens as a text.",
    Endpoint.APPLY_TEMPLATE: "Messages as the prompt that the model's template makes of them.",
    Endpoint.PROPS: "Properties of the engine.",
    Endpoint.SLOTS: "The engine's slots.",
    Endpoint.LORA_ADAPTERS: "The engine's LoRA adapters.",
}
_PASSED = (
    "Passed on to the engine of the profile that `model` names, bytes unchanged: llama-server's own description says "
    "what else it takes and answers."
)
_WHICH = "the id or alias of a profile"
_MODEL_QUERY = {
    "name": "model",
    "in": "query",
    "description": f"{_WHICH}, where the body names none; without either the only profile there is",
    "schema": {"type": "string"},
}
_BODY = {
    "type": "object",
    "properties": {
        "model": {"type": ["string", "null"], "description": f"{_WHICH}, or `auto`"},
        "stream": {"type": ["boolean", "null"]},
    },
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "refused by Paceline, in the envelope of OpenAI's or Anthropic's clients; or by the engine"},
    "5XX": {"description": "the profile or its engine cannot answer now, or the engine says so itself"},
}


def router() -> APIRouter:
    """The relay's endpoints. None of their functions ever runs."""
    routes = APIRouter(tags=[TAG])
    for (method, path), route in ROUTES.items():
        kinds = ("application/json", "text/event-stream") if route.format.may_stream else ("application/json",)
        body = {"requestBody": _json(_BODY if route.body_names_model else {})} if method == "POST" else {}
        _add(routes, method, path, _ABOUT[route.endpoint], _PASSED, kinds, parameters=[_MODEL_QUERY], **body)
    listed = "The profiles, by every name that they answer to, with their state."
    _add(routes, "GET", "/v1/models", listed)
    _add(routes, "GET", "/v1/models/{model:path}", "One of them.", parameters=[_in_path("model", _WHICH)])
    elsewhere = [_in_path("profile", _WHICH), _in_path("path", "what comes after it at the engine")]
    for method in ("GET", "POST"):
        about, more = (
            "Any path of one profile's engine.",
            "By any method; what changes an engine needs an admin key.",
        )
        _add(routes, method, f"{UPSTREAM_PREFIX}{{profile}}/{{path:path}}", about, more, ("*/*",), parameters=elsewhere)
    return routes


def _add(
    routes: APIRouter,
    method: str,
    path: str,
    summary: str,
    description: str = "",
    kinds: Sequence[str] = ("application/json",),
    **extra: Any,
) -> None:
    async def relayed() -> Response:
        raise NotImplementedError(f"the gate gives {path} to the relay before it comes here")

    routes.add_api_route(
        path,
        relayed,
        methods=[method],
        name=f"{method} {path}",
        summary=summary.removesuffix("."),
        description=description,
        response_class=Response,
        responses={200: {"description": "the answer", "content": {kind: {} for kind in kinds}}, **_REFUSALS},
        openapi_extra=extra,
    )


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _in_path(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}
