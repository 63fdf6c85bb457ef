"""Named errors as HTTP answers: problem+json on the control API, the OpenAI envelope under /v1."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app import errors
from app.access.key import KeyExists, KeyInvalid, KeyNeeded, KeyNotFound
from app.errors import LaunchRefused, PacelineError
from app.instances.residents import lacks_only_room
from app.instances.restart import TRANSIENT_REASONS
from app.proxy.asgi import Answer
from app.proxy.delivery import RequestCancelled
from app.proxy.endpoints import Dialect
from app.proxy.passage import UpgradeRefused
from app.telemetry.export import ParquetMissing
from app.telemetry.queries import QueryInvalid

_log = logging.getLogger(__name__)

_STATUS: dict[type[PacelineError], int] = {
    errors.ProfileNotFound: 404,
    errors.ProfileExists: 409,
    errors.ProfileInvalid: 422,
    errors.ProfileManaged: 409,
    errors.ProfileChanged: 412,
    errors.ProfileInUse: 409,
    errors.ModelFileError: 422,
    errors.EngineError: 503,
    errors.LaunchRefused: 409,
    errors.InstanceNotFound: 404,
    errors.InstanceNotRunning: 409,
    errors.InstanceFailed: 502,
    errors.WaitTimedOut: 504,
    errors.BodyInvalid: 400,
    errors.BodyTooLarge: 413,
    errors.ModelNotNamed: 400,
    errors.ModelUnknown: 404,
    errors.NoProfileFits: 400,
    errors.LogprobsWrong: 400,
    errors.ProfileNotRunning: 503,
    errors.QueueFull: 429,
    errors.QueueTimedOut: 429,
    UpgradeRefused: 501,
    errors.UpstreamFailed: 502,
    # As nginx says "client closed request"; only the one who cancelled can still be listening.
    RequestCancelled: 499,
    errors.RequestNotFound: 404,
    errors.RequestOver: 409,
    errors.DatabaseUnavailable: 503,
    QueryInvalid: 422,
    ParquetMissing: 501,
    KeyNotFound: 404,
    KeyExists: 409,
    KeyNeeded: 409,
    KeyInvalid: 422,
}
_ENVELOPE_TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPE = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
_ENVELOPE_PARAM: dict[type[PacelineError], str] = {errors.ModelNotNamed: "model", errors.ModelUnknown: "model"}


def status_of(error: PacelineError) -> int:
    """The HTTP status of a named error: that of its class, else of the nearest class above it."""
    if isinstance(error, errors.AccessDenied):
        return int(error.details.get("status", 403))
    for kind in type(error).__mro__:
        if kind in _STATUS:
            return _STATUS[kind]
    return 500


def problem(error: PacelineError, instance: str) -> tuple[int, dict[str, Any]]:
    """Status and body of an RFC 9457 answer; `instance` is the path that was asked for."""
    status = status_of(error)
    body = {
        "type": f"urn:paceline:problem:{error.code}",
        "title": error.code.replace("-", " "),
        "status": status,
        "detail": error.message,
        "instance": instance,
        "code": error.code,
        **{key: value for key, value in error.details.items() if key != "status"},
    }
    if isinstance(error, LaunchRefused):
        body["report"] = error.report
    return status, body


def openai_answer(error: PacelineError) -> Answer:
    """The answer in the OpenAI envelope, for everything under /v1."""
    # For who asks for a completion, a launch that is refused is a service that cannot be had now.
    status = 503 if isinstance(error, LaunchRefused) else status_of(error)
    param = next((param for kind, param in _ENVELOPE_PARAM.items() if isinstance(error, kind)), None)
    envelope = _envelope(status, error.code, error.message, param)
    headers = [(b"content-type", b"application/json")]
    if _stays(error):
        # The libraries of OpenAI and Anthropic would ask twice more, and hide the reason meanwhile.
        headers.append((b"x-should-retry", b"false"))
    elif status in (429, 503):
        headers.append((b"retry-after", b"5"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return Answer(status, headers, json.dumps({"error": envelope}).encode())


def _stays(error: PacelineError) -> bool:
    """Whether the same request meets the same error until somebody changes the profile, its files or the engine."""
    if isinstance(error, LaunchRefused):
        return not lacks_only_room(error.report)
    if isinstance(error, errors.InstanceFailed):
        return error.details.get("reason") not in TRANSIENT_REASONS
    return isinstance(error, errors.EngineError)


def relay_answer(error: PacelineError, dialect: Dialect) -> Answer:
    """The answer of the relay to its clients, in the envelope that they know."""
    answer = openai_answer(error)
    if dialect is not Dialect.ANTHROPIC:
        return answer
    default = "invalid_request_error" if answer.status < 500 else "api_error"
    inner = {"type": _ANTHROPIC_TYPE.get(answer.status, default), "message": error.message}
    return Answer(answer.status, answer.headers, json.dumps({"type": "error", "error": inner}).encode())


def problem_response(status: int, body: Mapping[str, Any]) -> JSONResponse:
    """A problem+json answer; under /v1 clients expect the OpenAI envelope, whatever went wrong."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    if str(body["instance"]).startswith("/v1"):
        return _Ascii({"error": _envelope(status, body["code"], body["detail"])}, status, headers=headers)
    return _Ascii(jsonable_encoder(body), status, headers=headers, media_type="application/problem+json")


class _Ascii(JSONResponse):
    """JSON that can repeat whatever was sent: half a surrogate pair, which JSON can name, is no UTF-8."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content).encode("ascii")


def _envelope(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    default = "invalid_request_error" if status < 500 else "server_error"
    kind = _ENVELOPE_TYPE.get(status, default)
    return {"message": message, "type": kind, "param": param, "code": code.replace("-", "_")}


def install(app: FastAPI) -> None:
    """Make every error of the control API a problem+json answer."""

    async def named(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, PacelineError)  # noqa: S101 - the class it is registered for
        return problem_response(*problem(error, request.url.path))

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - the class it is registered for
        if (broken := error.errors()[0])["type"] == "json_invalid":
            return unreadable(request, f"{broken['ctx']['error']} at character {broken['loc'][-1]}")
        problems = [
            {
                "field": ".".join(str(part) for part in found["loc"][1:]) or found["loc"][0],
                "message": found["msg"].removeprefix("Value error, "),
            }
            for found in error.errors()
        ]
        detail = "; ".join(f"{found['field']}: {found['message']}" for found in problems)
        return problem_response(422, _plain("request-invalid", 422, detail, request) | {"problems": problems})

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - the class it is registered for
        # Whatever goes wrong while it reads a body is one thing to the framework.
        if isinstance(error.__cause__, PacelineError):
            return await named(request, error.__cause__)
        if error.status_code == 400 and error.__cause__ is not None:
            return unreadable(request, str(error.__cause__))
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
        response = problem_response(error.status_code, _plain(code, error.status_code, str(error.detail), request))
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            # The framework names the methods of the first route that has this path.
            response.headers["Allow"] = ", ".join(_methods(request))
        return response

    def unreadable(request: Request, reason: str) -> JSONResponse:
        return problem_response(*problem(errors.BodyInvalid(f"the body is not JSON: {reason}"), request.url.path))

    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        _log.error("unforeseen error on %s %s", request.method, request.url.path, exc_info=error)
        detail = "An error that was not foreseen; the service's log has it."
        return problem_response(500, _plain("internal-error", 500, detail, request))

    app.add_exception_handler(PacelineError, named)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


def _methods(request: Request) -> list[str]:
    """The methods that some route takes at the path of this request."""
    return [
        method
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]


def _plain(code: str, status: int, detail: str, request: Request) -> dict[str, Any]:
    return {
        "type": f"urn:paceline:problem:{code}",
        "title": code.replace("-", " "),
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "code": code,
    }
