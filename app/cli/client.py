"""The service as the command line sees it: an HTTP API whose problems are errors with a text."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import httpx

from app.errors import PacelineError
from app.settings import Settings

_CONNECT_SECONDS = 5.0
# Starting a profile may load for an hour: the answer is awaited as long as the service lives.
_TIMEOUT = httpx.Timeout(None, connect=_CONNECT_SECONDS)
# A stream shows a sign of life every 15 seconds: without any the other side is gone.
_STREAM_TIMEOUT = httpx.Timeout(45, connect=_CONNECT_SECONDS)
_WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a service may listen on


class ServiceUnreachable(PacelineError):
    """Nothing answers at the address, or what answers is not Paceline."""

    code = "service-unreachable"


class ServiceProblem(PacelineError):
    """The service answered with a problem; `document` holds it with its typed members."""

    code = "service-problem"

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail") or document.get("title") or "the service gave no reason"))
        self.document = document


def service_url(settings: Settings) -> str:
    """Where a service with these settings is reached from this machine."""
    host = _WILDCARD_HOSTS.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def profile_path(profile_id: str, action: str = "") -> str:
    """Where a profile is, or what is done to it; an id may be anything that somebody typed."""
    path = f"/profiles/{quote(profile_id, safe='')}"
    return f"{path}/{action}" if action else path


class ServiceClient:
    """One connection to a service. Every call raises ServiceUnreachable or ServiceProblem."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._has_key = bool(key)
        # A proxy of the environment is for other people's services.
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON at `path`."""
        return self.call("GET", path, parameters=parameters)

    def post(self, path: str, body: Any = None, **parameters: Any) -> Any:
        """The JSON that a POST answers."""
        return self.call("POST", path, body=body, parameters=parameters)

    def put(self, path: str, body: Any) -> Any:
        """The JSON that a PUT answers."""
        return self.call("PUT", path, body=body)

    def delete(self, path: str) -> None:
        """Delete what is at `path`; the answer has no body."""
        self._answer("DELETE", path)

    def readiness(self) -> Any:
        """GET /ready, which says why not with status 503."""
        return self.call("GET", "/ready", also_good=503)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        parameters: Mapping[str, Any] | None = None,
        also_good: int | None = None,
    ) -> Any:
        """One call; an answer of 400 and more is a problem unless its status is `also_good`."""
        response = self._answer(method, path, body=body, parameters=parameters, also_good=also_good)
        try:
            return response.json()
        except ValueError as failure:
            raise self._foreign(f"{path} gave no JSON") from failure

    def completion(self, body: Mapping[str, Any]) -> str:
        """Run a completion to its end; the id under which it is recorded."""
        return str(self._answer("POST", "/v1/completions", body=body).headers["x-request-id"])

    def chat_deltas(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The pieces of text of a streamed chat completion, as they come."""
        try:
            with self._http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
                if response.is_error:
                    response.read()
                    raise self._problem(response)
                for line in response.iter_lines():
                    yield from _delta(line)
        except httpx.HTTPError as failure:
            raise self._unreachable(failure) from failure

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str], parameters: Mapping[str, Any]) -> Iterator[Iterator[bytes]]:
        """The bytes of a stream of events as they come. A stream that breaks off raises ServiceUnreachable."""
        try:
            with self._http.stream(
                "GET", path, headers=dict(headers), params=dict(parameters), timeout=_STREAM_TIMEOUT
            ) as response:
                if response.is_error:
                    response.read()
                    raise self._problem(response)
                yield response.iter_bytes()
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            raise self._unreachable(failure) from failure

    def _answer(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        parameters: Mapping[str, Any] | None = None,
        also_good: int | None = None,
    ) -> httpx.Response:
        try:
            response = self._http.request(method, path, json=body, params=parameters)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            raise self._unreachable(failure) from failure
        if response.is_error and response.status_code != also_good:
            raise self._problem(response)
        return response

    def _unreachable(self, failure: Exception) -> ServiceUnreachable:
        return ServiceUnreachable(
            f"no Paceline answers at {self.url} ({str(failure) or type(failure).__name__}): "
            "start it with `paceline serve`, or name another address with --url or PACELINE_URL"
        )

    def _foreign(self, said: str) -> ServiceUnreachable:
        return ServiceUnreachable(f"what answers at {self.url} is not Paceline ({said}): check --url and PACELINE_URL")

    def _problem(self, response: httpx.Response) -> PacelineError:
        try:
            document = response.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            return self._foreign(f"{response.request.url.path} gave {response.status_code} {response.reason_phrase}")
        if isinstance(envelope := document.get("error"), dict):
            document = {"detail": envelope.get("message"), **envelope}
        if response.status_code == httpx.codes.UNAUTHORIZED:
            is_expired = document.pop("reason", None) == "expired"
            said = str(document.get("detail"))
            document["detail"] = said if is_expired else self._key_fix(said)
        return ServiceProblem({"status": response.status_code, **document})

    def _key_fix(self, said: str) -> str:
        """The service speaks of headers; here a variable fills them."""
        if self._has_key:
            return f"{said}: PACELINE_ADMIN_KEY (or PACELINE_ADMIN_KEY_FILE) here is not the service's"
        return f"{said.partition(':')[0]}: set PACELINE_ADMIN_KEY to the service's, here or in a .env file"


def _delta(line: str) -> Iterator[str]:
    """The text in one line of the stream, if any."""
    payload = line.removeprefix("data:").strip()
    if not line.startswith("data:") or payload == "[DONE]":
        return
    event = json.loads(payload)
    if "error" in event:
        raise ServiceProblem({"detail": event["error"].get("message")})
    for choice in event.get("choices", []):
        if text := choice.get("delta", {}).get("content"):
            yield text
