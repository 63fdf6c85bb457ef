"""Categories in rows, and what profiles change and refuse, with the real embedded engine."""

from fixtures.tiny_models import TinyModels
from service import Service


def chat(service: Service, model: str, text: str, **more: object) -> dict[str, object]:
    headers = more.pop("headers", {})
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}
    answer = service.client.post("/v1/chat/completions", json=body, headers=headers)
    return {"answer": answer, "row": service.row(answer)}


def test_a_request_is_recorded_with_its_category(service: Service, tiny: TinyModels) -> None:
    service.add({"id": "categorised", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
    told = [
        chat(service, "categorised", "Write a function that adds two numbers.")["row"],
        chat(service, "categorised", "Translate to French: good morning")["row"],
        chat(service, "categorised", "Good morning", headers={"X-Paceline-Category": "rag"})["row"],
        chat(service, "categorised", "Good morning", headers={"X-Paceline-Category": "nonsense"})["row"],
    ]
    assert [row["category"] for row in told] == ["code", "translation", "rag", "other"]  # type: ignore[index]
    query = {"category": "translation", "profile": "categorised"}
    (found,) = service.client.get("/requests", params=query).json()["items"]
    assert found["id"] == told[1]["id"]  # type: ignore[index]
    assert service.client.get("/requests", params={"category": "nonsense"}).status_code == 422
    tokens = service.client.post("/tokenize", json={"model": "categorised", "content": "a"})
    assert service.row(tokens)["category"] is None


def test_a_profile_changes_what_is_asked_and_refuses_wrong_log_probabilities(
    service: Service, tiny: TinyModels
) -> None:
    service.add(
        {
            "id": "ruled",
            "target": {"path": tiny.dense_target.name},
            "speculation": {"method": "ngram-mod"},
            "context": {"threads": 1},
            "serving": {"strip_parameters": ["stop"], "set_parameters": {"max_tokens": 2}},
        }
    )
    answer = service.complete("ruled", stop=["a"])
    assert answer.json()["usage"]["completion_tokens"] == 2
    refused = service.complete("ruled", logprobs=3)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "logprobs_wrong")
    assert service.row(refused)["outcome"] == "rejected"
    # By way of its path as well.
    inner = service.client.post("/upstream/ruled/v1/completions", json={"prompt": "a", "logprobs": 3, "max_tokens": 2})
    assert (inner.status_code, inner.json()["error"]["code"]) == (400, "logprobs_wrong")
    service.client.patch("/profiles/ruled", json={"serving": {"allow_wrong_logprobs": True}})
    assert service.complete("ruled", logprobs=3).status_code == 200


def test_auto_goes_to_what_is_loaded(service: Service, tiny: TinyModels) -> None:
    for profile in ("auto-cold", "auto-warm"):
        service.add({"id": profile, "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
    for running in service.client.get("/instances").json()["items"]:
        if running["state"] == "ready":
            service.stop(running["profile_id"])
    service.start("auto-warm")
    told = chat(service, "auto", "Write a function that adds two numbers.")
    answer, row = told["answer"], told["row"]
    assert answer.status_code == 200  # type: ignore[attr-defined]
    assert answer.headers["x-paceline-profile"] == "auto-warm"  # type: ignore[attr-defined]
    assert answer.headers["x-paceline-route"].endswith("of those loaded")  # type: ignore[attr-defined]
    assert (row["requested_model"], row["profile_id"]) == ("auto", "auto-warm")  # type: ignore[index]
    assert row["route_reason"].startswith("auto: ")  # type: ignore[index]


def test_auto_is_listed_for_clients_that_choose_from_the_list(service: Service, tiny: TinyModels) -> None:
    service.add({"id": "listed", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
    listed = service.client.get("/v1/models").json()["data"]
    auto = service.client.get("/v1/models/auto").json()
    assert auto == listed[-1]
    assert auto.keys() == listed[0].keys()
    assert (auto["id"], auto["profile"]) == ("auto", None)
    # It is no file: the control path of nearly the same name lists those.
    assert all(item["path"] != "auto" for item in service.client.get("/models").json()["items"])

    service.client.patch("/profiles/listed", json={"serving": {"aliases": ["auto"]}})
    listed = service.client.get("/v1/models").json()["data"]
    assert [one["profile"] for one in listed if one["id"] == "auto"] == ["listed"]
    assert service.client.get("/v1/models/auto").json()["profile"] == "listed"
    told = chat(service, "auto", "Good morning")
    assert told["row"]["route_reason"] == "alias"  # type: ignore[index]
    assert "x-paceline-route" not in told["answer"].headers  # type: ignore[attr-defined]
    service.client.patch("/profiles/listed", json={"serving": {"aliases": []}})
    service.stop("listed")
