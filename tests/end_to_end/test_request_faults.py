"""What goes wrong while an engine answers, as the client sees it and as it is recorded."""

import httpx
import pytest
from fixtures.faulty_engine import Faults, ended
from service import completion, eventually

DRAFT = {"speculation": {"method": "draft", "draft": {"path": "draft.gguf"}}}


def test_counts_are_those_of_the_engine(faults: Faults) -> None:
    profile = faults.profile("counts", {"draft": {"n": 40, "accepted": 23}, "cached_tokens": 5}, **DRAFT)
    faults.service.start(profile)
    streamed, _ = faults.service.stream(profile, "one two", stream_options={"include_usage": True})
    for answer in (faults.service.complete(profile, "one two"), streamed):
        row = faults.service.row(answer)
        assert (row["draft_tokens"], row["accepted_tokens"], row["acceptance_rate"]) == (40, 23, 23 / 40)
        assert (row["prompt_tokens"], row["cached_tokens"], row["generated_tokens"]) == (7, 5, 32)
    faults.service.stop(profile)


def test_absent_draft_fields_are_not_zero(faults: Faults) -> None:
    profile = faults.profile("absent", {}, **DRAFT)
    assert faults.service.start(profile)["speculation"]["active"] is True
    row = faults.service.row(faults.service.complete(profile))
    absent = ("draft_tokens", "accepted_tokens", "acceptance_rate", "mean_acceptance_length_estimate")
    assert [row[name] for name in absent] == [None] * len(absent)
    assert row["method"] == "draft"
    assert faults.service.metric("paceline_request_draft_tokens_total", profile=profile) is None
    faults.service.stop(profile)


def test_an_error_in_mid_stream_is_passed_on(faults: Faults) -> None:
    profile = faults.profile("midstream", {"midstream_error": {"after_chunks": 3}})
    faults.service.start(profile)
    answer, payloads = faults.service.stream(profile)
    assert answer.status_code == 200
    assert len(payloads) == 4
    assert "Context size has been exceeded." in payloads[-1]
    row = faults.service.row(answer)
    assert (row["outcome"], row["status_code"]) == ("upstream_error", 200)
    assert row["error"] == "the engine reported server_error (500)"
    faults.service.stop(profile)


def test_a_stream_that_is_cut_ends_with_an_error(faults: Faults) -> None:
    profile = faults.profile("cut", {"cut_stream_after_chunks": 3})
    faults.service.start(profile)
    answer, payloads = faults.service.stream(profile)
    assert '"upstream_failed"' in payloads[-1]
    row = faults.service.row(answer)
    assert (row["outcome"], row["status_code"]) == ("upstream_failed", 200)
    assert row["error"]
    assert row["generated_tokens"] is None
    # One answer is made of a stream as well: of half of one nothing is made.
    whole = faults.service.complete(profile)
    assert (whole.status_code, whole.json()["error"]["code"]) == (502, "upstream_failed")
    assert faults.service.row(whole)["outcome"] == "upstream_failed"
    faults.service.stop(profile)


def test_an_error_answer_passes_through(faults: Faults) -> None:
    body = '{"error":{"code":500,"message":"Input prompt is too big","type":"server_error"}}'
    profile = faults.profile("refusing", {"error_status": {"status": 500, "body": body}})
    faults.service.start(profile)
    answer = faults.service.complete(profile)
    assert (answer.status_code, answer.text) == (500, body)
    row = faults.service.row(answer)
    assert (row["outcome"], row["status_code"], row["error"]) == (
        "upstream_error",
        500,
        "the engine reported server_error (500)",
    )
    faults.service.stop(profile)


def test_a_slow_first_byte_is_time_to_the_first_token(faults: Faults) -> None:
    profile = faults.profile("slow-byte", {"slow_first_byte_seconds": 0.3})
    faults.service.start(profile)
    answer, payloads = faults.service.stream(profile)
    assert payloads[-1] == "[DONE]"
    row = faults.service.row(answer)
    assert 0.3 <= row["time_to_first_token_seconds"] <= row["duration_seconds"]
    faults.service.stop(profile)


def test_pings_pass_and_are_no_tokens(faults: Faults) -> None:
    profile = faults.profile("pings", {"slow_first_token_seconds": 0.3, "ping_interval_seconds": 0.05})
    faults.service.start(profile)
    with faults.service.client.stream("POST", "/v1/completions", json=completion(profile, stream=True)) as answer:
        text = answer.read().decode()
    assert text.startswith(":\n\n:\n\n")
    row = faults.service.row(answer)
    assert row["time_to_first_token_seconds"] >= 0.3
    assert row["outcome"] == "completed"
    faults.service.stop(profile)


def test_a_client_that_leaves_frees_the_engine(faults: Faults) -> None:
    profile = faults.profile("left", {"chunk_interval_seconds": 0.02})
    instance = faults.service.start(profile)
    body = completion(profile, max_tokens=1000, stream=True)
    with (
        httpx.Client(base_url=faults.service.base_url, trust_env=False) as client,
        client.stream("POST", "/v1/completions", json=body) as answer,
    ):
        assert next(answer.iter_lines()).startswith("data: ")
    row = faults.service.row(answer)
    assert (row["outcome"], row["stream"]) == ("client_gone", True)
    eventually(lambda: faults.facts(profile, "client_disconnected") or None)
    assert faults.service.instance(instance["id"])["leases"] == 0
    faults.service.stop(profile)


def test_a_client_that_leaves_after_the_end_mark_has_its_answer(faults: Faults) -> None:
    """Official clients close as soon as they have read the end mark, before the stream itself ends."""
    chunks = ['data: {"choices":[{"text":"a","index":0,"finish_reason":"stop"}]}\n\n', "data: [DONE]\n\n", ":\n\n"]
    profile = faults.profile("left-at-end", {"stream_chunks": chunks, "chunk_interval_seconds": 0.3})
    faults.service.start(profile)
    with (
        httpx.Client(base_url=faults.service.base_url, trust_env=False) as client,
        client.stream("POST", "/v1/completions", json=completion(profile, stream=True)) as answer,
    ):
        assert "data: [DONE]" in answer.iter_lines()
    row = faults.service.row(answer)
    faults.service.stop(profile)
    assert row["outcome"] == "completed"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_abort_at_the_first_request(faults: Faults, stream: bool) -> None:
    profile = faults.profile(f"abort-request-{stream}".lower(), {"abort_on_first_request": True})
    instance = faults.service.start(profile)
    answer = faults.service.complete(profile, stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")
    row = faults.service.row(answer)
    assert (row["outcome"], row["status_code"], row["instance_id"]) == ("upstream_failed", 502, instance["id"])
    failed = ended(faults.service, instance["id"])
    assert (failed["reason"], failed["exit_code"]) == ("killed-by-signal-6", -6)
    assert "GGML_ASSERT" in failed["failure"]["message"]
