"""GET /instances/{id}/diagnosis."""

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api import problems
from app.api.diagnosis import router
from app.findings import Finding, Fix, warning
from app.identifiers import id_text

SLOW = warning(
    "slower-than-baseline",
    "It costs more than it gives.",
    expected="50 tokens/s",
    observed="40 tokens/s",
    evidence="counts",
    fixes=[Fix("No speculation", {"speculation": {"method": "none", "draft": None}}, 5)],
)


async def diagnose(identifier: int) -> Sequence[Finding] | None:
    return {7: [SLOW], 8: []}.get(identifier)


def asked(identifier: str) -> tuple[int, dict[str, object]]:
    app = FastAPI()
    problems.install(app)
    app.include_router(router(diagnose))
    with TestClient(app) as client:
        answer = client.get(f"/instances/{identifier}/diagnosis")
    return answer.status_code, answer.json()


def test_findings_have_the_shape_of_those_of_a_check() -> None:
    status, page = asked(id_text(7))
    assert status == 200
    assert page == {
        "items": [
            {
                "rule": "slower-than-baseline",
                "severity": "warning",
                "message": "It costs more than it gives.",
                "expected": "50 tokens/s",
                "observed": "40 tokens/s",
                "evidence": "counts",
                "overridable": False,
                "fixes": [
                    {
                        "description": "No speculation",
                        "patch": {"speculation": {"method": "none", "draft": None}},
                        "effect_bytes": 5,
                    }
                ],
            }
        ],
        "next_cursor": None,
    }


def test_a_healthy_instance_has_none() -> None:
    assert asked(id_text(8)) == (200, {"items": [], "next_cursor": None})


def test_an_instance_that_nobody_knows() -> None:
    for identifier in (id_text(9), "not-an-id"):
        status, problem = asked(identifier)
        assert (status, problem["code"]) == (404, "instance-not-found")
