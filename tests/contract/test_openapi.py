"""The OpenAPI document tells the truth: schemathesis asks every operation it names, rightly and wrongly.

Slow, since each of some 70 operations is asked dozens of things. It earns that no answer is an error that nobody
foresaw, that every status, content type, body and header that comes is one the document promises, that methods it does
not name are refused with those it does, and that each request which the relay took has its row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import schemathesis
from fixtures.tiny_models import TinyModels
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig
from service import Service, eventually, running_service, settings_for, short_folder

from app.main import create_app

KEY = "a-key-of-the-fuzzed-service"
# Events have no end: what comes in this time is judged.
STREAM_SECONDS = 0.2
ANSWER_SECONDS = 30.0
PROMISES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
    "allow_header_conformance",
)


@dataclass(frozen=True)
class Fuzzed:
    """A service to be spoilt. `known` are values for parameters of paths that there is something of."""

    service: Service
    profile: Mapping[str, Any]
    known: dict[str, str]
    request_ids: set[str] = field(default_factory=set)

    def restore(self) -> None:
        """Whatever the last operation has done, the profile is there as it was."""
        client, profile_id = self.service.client, self.profile["id"]
        assert client.put(f"/profiles/{profile_id}", json=self.profile).status_code in (200, 201)

    def ask(self, case: Case) -> None:
        """Send the request, and hold the answer against the document."""
        path = case.operation.path
        answer = case.call(
            base_url=self.service.base_url,
            timeout=STREAM_SECONDS if path.endswith(("/events", "/stream")) else ANSWER_SECONDS,
            headers={"Authorization": f"Bearer {KEY}"},
        )
        promises = set(PROMISES)
        if "x-paceline-instance" in answer.headers:
            # The engine may say 500 of what it does not understand; that is passed on as it is.
            promises.remove("not_a_server_error")
        if path == "/profiles/import":
            # It is the path of a profile called so, too.
            promises.remove("allow_header_conformance")
        case.validate_response(answer, checks=CHECKS.get_by_names(sorted(promises)))
        if "x-request-id" in answer.headers and not path.startswith("/v1/models"):
            self.request_ids.update(answer.headers["x-request-id"])

    def recorded(self) -> bool | None:
        """Whether each request that the relay took has its row."""
        answer = self.service.client.get("/requests", params={"limit": 1000})
        return True if self.request_ids <= {row["id"] for row in answer.json()["items"]} else None


def described() -> dict[str, Any]:
    """The document, before there is a service: each operation is to be a test of its own."""
    with short_folder() as folder:
        return create_app(settings_for(folder, folder)).api.openapi()


DOCUMENT = described()
OPERATIONS = [(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item]
CONFIG = SchemathesisConfig.from_dict(
    {
        "cache": {"enabled": False},
        "generation": {"deterministic": True, "database": "none"},
        # Only 500 is an error that nobody foresaw; the others are promised where they can come.
        "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501", "502", "503", "504"]}},
    }
)
load_all_checks()
operations = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)
bounded = settings(
    max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Fuzzed]:
    chosen = settings_for(tmp_path_factory.mktemp("fuzzed"), tiny.dense_target.parent, admin_key=KEY)
    with running_service(chosen) as service:
        service.client.headers["authorization"] = f"Bearer {KEY}"
        profile = {"id": "known", "target": {"path": tiny.dense_target.name}}
        service.add(profile)
        instance = service.start("known")
        row = service.row(service.complete("known"))
        known = {"profile_id": "known", "profile": "known", "model": "known"}
        yield Fuzzed(service, profile, {**known, "instance_id": instance["id"], "identifier": row["id"]})


@pytest.fixture
def fuzzed(spoilt: Fuzzed) -> Iterator[Fuzzed]:
    spoilt.restore()
    spoilt.request_ids.clear()
    yield spoilt
    eventually(spoilt.recorded)


@pytest.mark.slow
@operations.exclude(tag="inference").parametrize()
@bounded
def test_every_answer_of_the_control_api_is_promised(case: Case, fuzzed: Fuzzed) -> None:
    fuzzed.ask(case)
    if known := {name: fuzzed.known[name] for name in case.path_parameters if name in fuzzed.known}:
        case.path_parameters.update(known)
        fuzzed.ask(case)


@pytest.mark.slow
@operations.include(tag="inference").parametrize()
@bounded
def test_every_answer_of_the_relay_is_promised(case: Case, fuzzed: Fuzzed) -> None:
    fuzzed.ask(case)


def test_the_service_gives_this_document(fuzzed: Fuzzed) -> None:
    assert fuzzed.service.client.get("/openapi.json").json() == DOCUMENT


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_needs_a_key(method: str, path: str, fuzzed: Fuzzed) -> None:
    answer = fuzzed.service.client.request(method, path, headers={"authorization": ""})
    assert answer.status_code == (200 if path in ("/health", "/metrics") else 401)
