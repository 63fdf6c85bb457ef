"""What a profile puts into bodies, takes out of them, and refuses."""

import pytest

from app.errors import LogprobsWrong
from app.profiles.profile import LaunchProfile, parse_profile
from app.proxy.profile_rules import as_profile_wants
from app.proxy.request_body import RequestBody

BODY = RequestBody(b'{"model":"p","temperature":0.5,"logprobs":true}')


def profile(**parts: object) -> LaunchProfile:
    return parse_profile({"id": "p", "target": {"path": "x.gguf"}, **parts})


def test_without_rules_the_bytes_are_the_same() -> None:
    assert as_profile_wants(profile(), BODY, may_draft=False) is BODY


def test_fields_are_taken_out_and_put_in() -> None:
    wanted = profile(serving={"strip_parameters": ["temperature"], "set_parameters": {"top_k": 1}})
    assert as_profile_wants(wanted, BODY, may_draft=False).data == b'{"model":"p","logprobs":true,"top_k":1}'


def test_log_probabilities_are_refused_where_the_instance_speculates() -> None:
    with pytest.raises(LogprobsWrong) as caught:
        as_profile_wants(profile(), BODY, may_draft=True)
    assert "serving.allow_wrong_logprobs" in caught.value.message


def test_they_pass_without_speculation_where_it_is_allowed_and_where_the_profile_takes_them_out() -> None:
    assert as_profile_wants(profile(speculation={"method": "ngram-mod"}), BODY, may_draft=False) is BODY
    assert as_profile_wants(profile(serving={"allow_wrong_logprobs": True}), BODY, may_draft=True) is BODY
    stripped = profile(serving={"strip_parameters": ["logprobs"]})
    assert as_profile_wants(stripped, BODY, may_draft=True).data == b'{"model":"p","temperature":0.5}'
