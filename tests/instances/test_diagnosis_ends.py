"""Why a life is over, as findings."""

from datetime import UTC, datetime
from typing import Any

import pytest
from fixtures.cases import profile
from fixtures.evidences import patched

from app.findings import Finding, Severity
from app.instances.diagnosis import DEGRADATIONS
from app.instances.diagnosis.ends import ENDS, end_of
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.llama_server.log_lines import FailureReason, failure_of

DRAFTED = profile(speculation={"method": "draft", "draft": {"path": "d.gguf"}})


def ended(reason: str | None, state: InstanceState = InstanceState.FAILED, **changes: Any) -> InstanceRecord:
    fields: dict[str, Any] = {
        "id": 7, "profile_id": "p", "revision": 1, "state": state, "engine_build": "b1", "argv": (),
        "created_at": datetime(2026, 1, 1, tzinfo=UTC), "speculation": {}, "reason": reason,
    }  # fmt: skip
    return InstanceRecord(**{**fields, **changes})


def end(reason: str, **changes: Any) -> Finding:
    (found,) = end_of(ended(reason, **changes), DRAFTED)
    assert found.rule == reason
    assert found.message.endswith(".")
    assert found.expected
    assert found.observed
    assert found.evidence
    return found


def test_a_life_that_was_stopped_as_asked_has_nothing_to_say() -> None:
    assert end_of(ended(None, InstanceState.STOPPED), DRAFTED) == []


@pytest.mark.parametrize(
    "reason", [*ENDS, *DEGRADATIONS, "killed-by-signal-9", "killed-by-signal-15", "not-known-here"]
)
def test_every_reason_is_a_finding_of_that_name(reason: str) -> None:
    found = end(reason)
    assert found.severity is Severity.ERROR
    assert end(reason, state=InstanceState.STOPPED).severity is Severity.INFO
    advised = end_of(ended(reason))[0]
    assert advised.message == found.message
    assert [fix.patch for fix in advised.fixes] == [{}]


def test_every_reason_that_the_output_gives_is_known() -> None:
    assert {reason.value for reason in FailureReason} <= set(ENDS)


def test_what_the_engine_said_is_the_evidence() -> None:
    lines = [f"0.00.001.{number:03} I line {number}" for number in range(8)]
    failure = failure_of(1, [*lines, "0.00.002.000 E failed to allocate buffer for kv cache"])
    document = {"reason": failure.reason, "message": failure.message, "last_lines": list(failure.last_lines)}
    found = end(failure.reason, failure=document, exit_code=1)
    assert found.rule == "out-of-memory"
    assert "failed to allocate buffer for kv cache" in found.message
    assert found.evidence.splitlines()[-1] == failure.last_lines[-1]
    assert len(found.evidence.splitlines()) == 5
    assert found.observed == "failed: out-of-memory, exit code 1"
    assert "/check" in found.fixes[0].description


def test_signals_are_told_apart() -> None:
    messages = {end(f"killed-by-signal-{number}").message for number in (6, 9, 11, 15)}
    assert len(messages) == 4
    assert end("killed-by-signal-1").message == end("killed-by-signal-15").message


def test_a_drafter_that_failed_can_be_left_out() -> None:
    (fix,) = end("draft-failed").fixes
    assert patched(DRAFTED, fix).speculation.methods == ()
    assert end_of(ended("draft-failed"), profile())[0].fixes == []


def test_who_ended_it_on_purpose_can_be_told_not_to() -> None:
    lazy = profile(serving={"idle_timeout_seconds": 60, "on_degraded": "stop"})
    stopped = InstanceState.STOPPED
    (idle,) = end_of(ended("idle-timeout", stopped), lazy)
    assert patched(lazy, idle.fixes[0]).serving.idle_timeout_seconds is None
    (evicted,) = end_of(ended("evicted", stopped), lazy)
    assert patched(lazy, evicted.fixes[0]).serving.pinned
    (degraded,) = end_of(ended("speculation-inactive"), lazy)
    assert patched(lazy, degraded.fixes[0]).serving.on_degraded == "keep"


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        (["--temp", "0", "--gone", "7", "--seed", "1"], ("--temp", "0", "--seed", "1")),
        (["--gone", "--seed", "1"], ("--seed", "1")),
    ],
)
def test_a_flag_that_the_engine_has_not_is_taken_out(extra: list[str], kept: tuple[str, ...]) -> None:
    wanted = profile(extra_args=extra)
    failure = {"message": "The server exited with code 1: error: invalid argument: --gone", "last_lines": []}
    (found,) = end_of(ended("flag-unknown", failure=failure), wanted)
    assert patched(wanted, found.fixes[0]).extra_args == kept
    elsewhere = {"message": "error: invalid argument: --not-ours", "last_lines": []}
    (advised,) = end_of(ended("flag-unknown", failure=elsewhere), wanted)
    assert [fix.patch for fix in advised.fixes] == [{}]
