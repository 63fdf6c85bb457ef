"""Engines that hang, and one that only takes its time, as the canary tells them apart."""

import os
import signal
from collections.abc import Iterator

import pytest
from fixtures.faulty_engine import ended
from fixtures.tiny_models import write_dense
from service import InFlight, Service, completion, running_service, settings_for, short_folder

pytestmark = pytest.mark.slow

ENGINES = [pytest.param("llama-server", marks=pytest.mark.engine), "embedded"]
# A canary that is quick to suspect, and quick to judge.
SILENCE_SECONDS, PROBE_SECONDS = 0.4, 0.6
SUSPICIOUS = {
    "canary_silence_seconds": SILENCE_SECONDS, "canary_probe_seconds": PROBE_SECONDS,
    "restart_pause_seconds": 0.05, "terminate_seconds": 0.2, "kill_seconds": 0.2,
}  # fmt: skip


@pytest.fixture(scope="module", params=ENGINES)
def suspicious(request: pytest.FixtureRequest) -> Iterator[Service]:
    engine = request.param if request.param == "embedded" else str(request.getfixturevalue("engine_path"))
    with short_folder() as folder:
        write_dense(folder / "long.gguf", blocks=8, context_length=1 << 16)
        with running_service(settings_for(folder, folder, engine=engine, **SUSPICIOUS)) as service:
            context = {"threads": 1, "size": 1 << 16, "batch_size": 64, "ubatch_size": 64}
            service.add({"id": "long", "target": {"path": "long.gguf"}, "context": context})
            yield service


@pytest.mark.parametrize("within", [False, True], ids=["before-its-answer", "within-its-answer"])
def test_an_engine_that_hangs_is_ended_and_replaced(suspicious: Service, within: bool) -> None:
    """Earns that nobody waits for ever: two probes have to pass, and three signals."""
    service = suspicious
    instance = service.start("long")
    assert service.complete("long").status_code == 200
    if not within:
        os.kill(instance["pid"], signal.SIGSTOP)
    hung = InFlight(service, completion("long", max_tokens=50_000, stream=True))
    if within:
        assert hung.has_begun()
        os.kill(instance["pid"], signal.SIGSTOP)
    failed = ended(service, instance["id"])
    assert (failed["state"], failed["reason"]) == ("failed", "unresponsive")
    assert "silent on a request" in failed["failure"]["message"]
    answer, failure = hung.outcome()
    assert answer is not None
    assert failure is None
    assert answer.status_code == (200 if within else 502)
    assert service.row(answer)["outcome"] == "upstream_failed"
    assert service.complete("long").status_code == 200
    assert service.newest("long")["id"] != instance["id"]


def test_a_long_prompt_is_no_hang(suspicious: Service) -> None:
    """Earns that a slow machine is left to its work: silent for longer than suspicion and probes, its slots move."""
    service = suspicious
    instance = service.start("long")
    for words in (1000, 2000, 4000, 7000):
        answer = service.complete("long", f"{words} " + "abcdefg " * words, max_tokens=1)
        assert answer.status_code == 200
        row = service.row(answer)
        assert row["instance_id"] == instance["id"]
        if row["prompt_seconds"] > SILENCE_SECONDS + 2 * PROBE_SECONDS + 0.2:
            return
    pytest.fail("this machine reads every prompt at once")
