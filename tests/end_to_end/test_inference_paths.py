"""Every inference path through the service to the embedded engine, and what is recorded of each."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fixtures.tiny_models import TinyModels
from service import Service, events

CHAT, VECTORS, RANKING = "paths-chat", "paths-vectors", "paths-ranking"
ALIAS = "größe/tiny:chat v1?#%/x"
QUESTION: Any = [{"role": "user", "content": "hello abc"}]
TOKENS = 5


@pytest.fixture(scope="module")
def paths(service: Service, tiny: TinyModels) -> Iterator[Service]:
    """A service with a profile that chats, one for embeddings and one that ranks."""
    for name, extra in ((CHAT, []), (VECTORS, ["--embeddings", "--pooling", "mean"]), (RANKING, ["--reranking"])):
        service.add(
            {
                "id": name,
                "target": {"path": tiny.dense_target.name},
                "context": {"threads": 1},
                "serving": {"aliases": [ALIAS] if name == CHAT else []},
                "extra_args": extra,
            }
        )
    yield service
    for name in (CHAT, VECTORS, RANKING):
        service.stop(name)


def post(service: Service, path: str, **body: Any) -> tuple[httpx.Response, dict[str, Any]]:
    """The answer and its row."""
    answer = service.client.post(path, json=body)
    return answer, service.row(answer)


def numbers(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["prompt_tokens"], row["generated_tokens"], row["generation_seconds"] is not None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "endpoint", "body", "timed_when"),
    [
        ("/v1/chat/completions", "chat_completions", {"messages": QUESTION, "max_tokens": TOKENS}, (False, True)),
        ("/chat/completions", "chat_completions", {"messages": QUESTION, "max_tokens": TOKENS}, (False, True)),
        ("/v1/completions", "completions", {"prompt": "hello abc", "max_tokens": TOKENS}, (False, True)),
        ("/completion", "completion", {"prompt": "hello abc", "n_predict": TOKENS}, (False, True)),
        ("/completions", "completion", {"prompt": "hello abc", "n_predict": TOKENS}, (False, True)),
        ("/v1/responses", "responses", {"input": "hello abc", "max_output_tokens": TOKENS}, (True,)),
        ("/v1/messages", "messages", {"messages": QUESTION, "max_tokens": TOKENS}, ()),
    ],
)
def test_what_generates(
    paths: Service, path: str, endpoint: str, body: dict[str, Any], timed_when: tuple[bool, ...], stream: bool
) -> None:
    """Times are recorded where the engine tells them: never for Anthropic, for Responses only in streams."""
    answer, row = post(paths, path, **body, model=ALIAS, stream=stream)
    assert answer.status_code == 200, answer.text
    assert (row["endpoint"], row["outcome"], row["stream"], row["requested_model"]) == (
        endpoint, "completed", stream, ALIAS,
    )  # fmt: skip
    prompt_tokens = 9 if "prompt" in body else 59
    assert numbers(row) == (prompt_tokens, TOKENS, stream in timed_when)
    assert row["cached_tokens"] is not None
    assert row["finish_reason"]
    # An answer that is put together from a stream has a first token, too.
    is_put_together = endpoint in ("chat_completions", "completions")
    assert (row["time_to_first_token_seconds"] is not None) is (stream or is_put_together)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings", "/embedding"])
def test_embeddings(paths: Service, path: str) -> None:
    answer, row = post(paths, path, model=VECTORS, input="hello", content="hello")
    assert answer.status_code == 200, answer.text
    assert "embedding" in answer.text
    # The engine's own form says nothing of tokens.
    assert numbers(row) == (5 if path == "/v1/embeddings" else None, None, False)
    assert (row["endpoint"], row["outcome"]) == ("embeddings", "completed")


@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"])
def test_rankings(paths: Service, path: str) -> None:
    answer, row = post(paths, path, model=RANKING, query="a", documents=["abc", "d"])
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["results"]) == 2
    assert numbers(row) == (answer.json()["usage"]["prompt_tokens"], None, False)
    assert (row["endpoint"], row["outcome"]) == ("rerank", "completed")


@pytest.mark.parametrize(
    ("path", "body", "answered"),
    [
        ("/tokenize", {"content": "ab"}, {"tokens": [97, 98]}),
        ("/detokenize", {"tokens": [97, 98]}, {"content": "ab"}),
        ("/v1/messages/count_tokens", {"messages": QUESTION}, {"input_tokens": 59}),
        ("/v1/responses/input_tokens", {"input": "hello"}, {"input_tokens": 55, "object": "response.input_tokens"}),
    ],
)
def test_what_counts_and_converts(paths: Service, path: str, body: dict[str, Any], answered: dict[str, Any]) -> None:
    answer, row = post(paths, path, **body, model=CHAT)
    assert answer.json() == answered
    assert (row["outcome"], *numbers(row)) == ("completed", None, None, False)


def test_a_template_is_applied(paths: Service) -> None:
    answer, row = post(paths, "/apply-template", model=CHAT, messages=QUESTION)
    assert "hello abc" in answer.json()["prompt"]
    assert row["endpoint"] == "apply_template"


def test_what_the_engine_cannot_do_passes_as_it_says_it(paths: Service) -> None:
    answer, row = post(paths, "/infill", model=CHAT, input_prefix="a", input_suffix="b")
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")
    assert (row["endpoint"], row["outcome"], row["error"]) == (
        "infill", "upstream_error", "the engine reported not_supported_error (501)",
    )  # fmt: skip


@pytest.mark.parametrize(("path", "key"), [("/props", "total_slots"), ("/slots", 0), ("/lora-adapters", None)])
def test_questions_to_an_engine(paths: Service, path: str, key: Any) -> None:
    answer = paths.client.get(path, params={"model": ALIAS})
    assert answer.status_code == 200, answer.text
    assert answer.json() == [] if key is None else answer.json()[key]
    row = paths.row(answer)
    assert (row["profile_id"], row["requested_model"], row["outcome"]) == (CHAT, ALIAS, "completed")


def test_control_paths_win(paths: Service) -> None:
    assert "items" in paths.client.get("/models").json()
    assert paths.client.get("/metrics").text.startswith("# HELP paceline")
    assert "llamacpp:" not in paths.client.get("/metrics").text


# Any path of one engine.


ENCODED_ALIAS = "gr%C3%B6%C3%9Fe%2Ftiny%3Achat%20v1%3F%23%25%2Fx"


@pytest.mark.parametrize("name", [CHAT, ENCODED_ALIAS, ENCODED_ALIAS.replace("%2F", "/")])
def test_any_path_of_an_engine(paths: Service, name: str) -> None:
    assert paths.client.get(f"/upstream/{name}/health").json() == {"status": "ok"}
    answer = paths.client.get(f"/upstream/{name}/v1/models")
    assert answer.json()["data"][0]["owned_by"] == "llamacpp"
    row = paths.row(answer)
    assert (row["endpoint"], row["profile_id"], row["outcome"]) == ("upstream", CHAT, "completed")
    assert paths.client.get(f"/upstream/{name}/no/such").status_code == 404


def test_a_stream_by_way_of_any_path(paths: Service) -> None:
    body = {"messages": QUESTION, "max_tokens": TOKENS, "stream": True}
    with paths.client.stream("POST", f"/upstream/{CHAT}/v1/chat/completions", json=body) as answer:
        assert list(events(answer))[-1] == "[DONE]"
    row = paths.row(answer)
    assert (row["endpoint"], row["stream"], *numbers(row)) == ("upstream", True, 59, TOKENS, True)


def test_a_profile_that_does_not_run_starts_for_any_path(paths: Service, tiny: TinyModels) -> None:
    name = paths.add({"id": "paths-asleep", "target": {"path": tiny.dense_target.name}, "context": {"threads": 1}})
    assert paths.client.get(f"/upstream/{name}/props").json()["total_slots"] >= 1
    assert paths.state(name) == "ready"
    paths.stop(name)


def test_the_page_of_an_engine(paths: Service) -> None:
    """The embedded engine has one; it loads what it needs by relative links, so that it works below a prefix."""
    page = paths.client.get(f"/upstream/{CHAT}", follow_redirects=True)
    assert page.url.path == f"/upstream/{CHAT}/"
    assert page.headers["content-type"].startswith("text/html")
    scripts = [part.split('"')[0] for part in page.text.split('href="')[1:] if ".js" in part.split('"')[0]]
    assert scripts
    for link in scripts:
        assert not link.startswith("/"), "a link to the root of the host would miss the prefix"
        script = paths.client.get(str(page.url.join(link)))
        assert script.headers["content-type"].startswith("application/javascript")
        assert len(script.content) == int(script.headers.get("content-length", 0)) or script.num_bytes_downloaded
    etag = page.headers["etag"]
    assert paths.client.get(f"/upstream/{CHAT}/", headers={"If-None-Match": etag}).status_code == 304


def test_a_large_body_reaches_the_engine(paths: Service) -> None:
    text = "x" * (60 * 1024 * 1024)
    answer = paths.client.post(f"/upstream/{CHAT}/detokenize", json={"tokens": [97], "unknown": text})
    assert answer.json() == {"content": "a"}
