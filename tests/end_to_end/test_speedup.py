"""What /stats says of a profile that speculates, against one that does not: real requests, and the sums by hand."""

from collections.abc import Iterator
from typing import Any

import pytest
from fixtures.shapes import SHAPES
from fixtures.tiny_models import TinyModels
from service import Service, eventually, running_service, settings_for

REQUESTS = 6


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    settings = settings_for(tmp_path_factory.mktemp("speedup"), tiny.dense_target.parent, engine="embedded")
    with running_service(settings) as service:
        for name, shape_id in (("fast", "ngram-simple"), ("plain", "baseline")):
            shape = next(shape for shape in SHAPES if shape.id == shape_id)
            service.add({**shape.document(tiny), "id": name})
        yield service


def rows(service: Service, profile_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.client.get("/requests", params={"profile": profile_id}).json()["items"]
    return found


def rate(found: list[dict[str, Any]]) -> float:
    tokens = sum(row["generated_tokens"] - 1 for row in found)
    return float(tokens / sum(row["generation_seconds"] for row in found))


def test_the_speed_up_is_that_of_the_rows(service: Service) -> None:
    for profile_id in ("plain", "fast"):
        for _ in range(REQUESTS):
            service.complete(profile_id)
        eventually(lambda name=profile_id: len(rows(service, name)) == REQUESTS or None)
    answer = service.client.get("/stats", params={"group_by": "profile,method"}).json()["items"]
    fast, plain = (next(item for item in answer if item["profile"] == name) for name in ("fast", "plain"))
    assert plain["speedup"] is None
    speedup = fast["speedup"]
    assert speedup["speedup"] == pytest.approx(rate(rows(service, "fast")) / rate(rows(service, "plain")))
    assert speedup["interval"]["low"] <= speedup["speedup"] <= speedup["interval"]["high"]
    assert speedup["interval"]["confidence"] == 0.95
    assert speedup["pays"] in (True, False, None)
    assert (speedup["requests"], speedup["baseline_requests"]) == (REQUESTS, REQUESTS)
    assert (speedup["baselines"], speedup["differences"]) == (["plain"], [])
    (category,) = speedup["by_category"].values()
    assert {**speedup, "interval": None} == {
        **category, "interval": None, "by_category": speedup["by_category"], "not_compared": {}, "reason": None,
        "baselines": ["plain"], "differences": [],
    }  # fmt: skip
    assert category["interval"] == speedup["interval"]


def test_a_group_says_what_served_it(service: Service) -> None:
    """Another revision of the profile begins a group of mixed origin; by revision each is of one again."""
    (before,) = service.client.get("/stats", params={"profile": "fast"}).json()["items"]
    assert before["provenance"]["mixed"] == []
    row = rows(service, "fast")[0]
    named = ("revision", "argv_hash", "engine_build", "device_set")
    assert {name: before["provenance"][name] for name in named} == {name: [row[name]] for name in named}
    service.stop("fast")
    service.client.patch("/profiles/fast", json={"context": {"batch_size": 512}}).raise_for_status()
    service.complete("fast")
    eventually(lambda: len(rows(service, "fast")) == REQUESTS + 1 or None)
    (after,) = service.client.get("/stats", params={"profile": "fast"}).json()["items"]
    assert after["provenance"]["mixed"] == ["revision", "argv_hash"]
    by_revision = service.client.get("/stats", params={"profile": "fast", "group_by": "revision"}).json()["items"]
    assert [item["provenance"]["mixed"] for item in by_revision] == [[], []]
