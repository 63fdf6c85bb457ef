"""POST /suggest and POST /profiles/{id}/suggest, on the embedded engine and tiny files."""

from typing import Any

from fixtures.tiny_models import TinyModels
from service import Service

from app.api.suggest import free_id

GIB = 1 << 30
_TWO_CARDS = {
    "devices": [{"name": name, "total_bytes": 24 * GIB, "free_bytes": 23 * GIB} for name in ("CUDA0", "CUDA1")],
    "host": {"total_bytes": 64 * GIB, "available_bytes": 60 * GIB},
}


def suggested(service: Service, path: str, body: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The suggestions; each report is that of the profile's own check."""
    answer = service.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["next_cursor"] is None
    for item in page["items"]:
        assert set(item) == {"profile", "reason", "report"}
        assert item["report"]["verdict"] != "refused"
        again = {"profile": item["profile"]}
        if body and "machine" in body:
            again["machine"] = body["machine"]
        report = service.client.post("/check", json=again).json()
        assert report["verdict"] == item["report"]["verdict"]
        assert report["argv"] == item["report"]["argv"]
    items: list[dict[str, Any]] = page["items"]
    return items


def test_files_alone_are_enough(service: Service, tiny: TinyModels) -> None:
    files = {"target": tiny.dense_target.name, "draft": tiny.draft.name}
    items = suggested(service, "/suggest", files)
    assert items
    methods = [item["profile"]["speculation"]["method"] for item in items]
    assert {"none", "draft"} <= set(methods)


def test_a_suggestion_can_be_stored_and_started(service: Service, tiny: TinyModels) -> None:
    first = suggested(service, "/suggest", {"target": tiny.dense_target.name})[0]["profile"]
    service.add(first)
    instance = service.start(first["id"])
    assert instance["degradations"] == []
    assert service.complete(first["id"]).status_code == 200
    service.stop(first["id"])
    second = suggested(service, "/suggest", {"target": tiny.dense_target.name})[0]["profile"]
    assert second["id"] == f"{first['id']}-2"


def test_another_machine_can_be_asked_about(service: Service, tiny: TinyModels) -> None:
    files = {"target": tiny.dense_target.name, "draft": tiny.dspark.name, "machine": _TWO_CARDS}
    first = suggested(service, "/suggest", files)[0]
    # The embedded engine takes no list of devices, but runs on one of them.
    placement = first["profile"]["placement"]
    assert (placement["devices"], placement["split_mode"], placement["main_gpu"]) == (["CUDA0"], "none", 0)
    assert first["profile"]["speculation"]["draft"]["device"] == "CUDA0"
    assert first["report"]["estimate_source"] == "analytic"


def test_a_profile_s_wishes_are_kept(service: Service, tiny: TinyModels) -> None:
    service.add(
        {
            "id": "wish",
            "target": {"path": tiny.mtp_target.name},
            "speculation": {"method": "mtp", "draft_tokens_max": 2},
            "context": {"size": 512, "threads": 1},
        }
    )
    for body in (None, {"machine": _TWO_CARDS}):
        first = suggested(service, "/profiles/wish/suggest", body)[0]["profile"]
        assert first["id"] == "wish"
        assert (first["context"]["size"], first["context"]["threads"]) == (512, 1)
    assert first["speculation"]["method"] == "mtp"
    assert first["speculation"]["draft_tokens_max"] == 2


def findings(service: Service, path: str, body: dict[str, Any] | None = None) -> tuple[int, list[dict[str, Any]]]:
    """How many profiles are suggested, and what is said beside them."""
    answer = service.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert set(page) == {"items", "next_cursor", "findings"}
    for finding in page["findings"]:
        assert {"rule", "severity", "message", "expected", "observed", "evidence", "fixes"} <= set(finding)
        assert finding["severity"] == ("warning" if page["items"] else "error")
    return len(page["items"]), page["findings"]


def test_an_answer_without_profiles_has_a_reason(service: Service, tiny: TinyModels) -> None:
    count, (found,) = findings(service, "/suggest", {"target": tiny.dspark.name})
    assert (count, found["rule"]) == (0, "target-is-a-drafter")
    small = {"devices": [], "host": {"total_bytes": 1 << 20, "available_bytes": 1 << 20}}
    count, (found,) = findings(service, "/suggest", {"target": tiny.dense_target.name, "machine": small})
    assert (count, found["rule"]) == (0, "nothing-fits")
    assert "the host lacks" in found["message"]


def test_what_of_the_wish_is_left_out_has_one_too(service: Service, tiny: TinyModels) -> None:
    same = {"target": tiny.dense_target.name, "draft": tiny.dense_target.name}
    count, (found,) = findings(service, "/suggest", same)
    assert (count > 0, found["rule"]) == (True, "draft-is-target")
    service.add({"id": "heads", "target": {"path": tiny.dense_target.name}, "speculation": {"method": "mtp"}})
    count, (found,) = findings(service, "/profiles/heads/suggest")
    assert (count > 0, found["rule"]) == (True, "mtp-absent")
    assert findings(service, "/suggest", {"target": tiny.dense_target.name, "draft": tiny.draft.name})[1] == []


def test_what_its_own_check_refuses_is_not_passed_over(service: Service, tiny: TinyModels) -> None:
    """The search knows nothing of extra arguments."""
    service.add({"id": "flags", "target": {"path": tiny.dense_target.name}, "extra_args": ["--no-such-flag"]})
    count, (found,) = findings(service, "/profiles/flags/suggest")
    assert (count, found["rule"]) == (0, "flag-unknown")


def test_what_cannot_be_answered_says_why(service: Service, tiny: TinyModels) -> None:
    assert service.client.post("/profiles/absent/suggest").status_code == 404
    missing = service.client.post("/suggest", json={"target": "absent.gguf"})
    assert (missing.status_code, missing.json()["code"]) == (422, "model-file-missing")
    outside = service.client.post("/suggest", json={"target": "../../etc/passwd"})
    assert (outside.status_code, outside.json()["code"]) == (422, "model-file-outside")
    unknown = service.client.post("/suggest", json={"target": tiny.dense_target.name, "drft": "x"})
    assert unknown.status_code == 422


def test_an_id_is_made_of_the_file_s_name() -> None:
    assert free_id("a/Qwen3 8B-Q4_K_M-00001-of-00004.gguf", {}) == "qwen3-8b-q4_k_m"
    assert free_id("模型.gguf", {}) == "suggested"
    assert free_id("x.gguf", {"x": "x", "x-2": "y"}) == "x-3"
