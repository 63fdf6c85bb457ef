"""Requests of several keys for a profile that serves one at a time, on an engine that takes its time."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import httpx
import pytest
from fixtures.faulty_engine import Faults, service_with_faults
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, completion, eventually

ADMIN = "configured-marker-key-0123456789"
# Eight tokens: short, and long enough that the answers come one after another for those who read them, too.
SLOW = {"chunk_interval_seconds": 0.02}
SHORT, ENDLESS = 8, 2000


@pytest.fixture(scope="module")
def keyed(tiny: TinyModels) -> Iterator[Faults]:
    with service_with_faults(tiny, admin_key=ADMIN) as faults:
        faults.service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        yield faults


class Senders:
    """Sends requests, each from a thread of its own; `order` has whose were answered, as they were."""

    def __init__(self, faults: Faults, profile: str, pool: ThreadPoolExecutor, *keys: str) -> None:
        self._service = faults.service
        self._profile = profile
        self._pool = pool
        made = {key: faults.service.client.post("/keys", json={"name": key}) for key in keys}
        self._secrets = {key: answer.json()["secret"] for key, answer in made.items()}
        self.order: list[str] = []

    def send(self, key: str, tokens: int = SHORT) -> Future[httpx.Response]:
        """One request with this key."""
        return self._pool.submit(self._send, key, tokens)

    def waits_for(self, leases: int, queued: int) -> None:
        """Until so many are served and so many wait."""

        def stands() -> bool | None:
            instance = self._service.newest(self._profile)
            return (instance["leases"], instance["queued"]) == (leases, queued) or None

        assert eventually(stands)

    def _send(self, key: str, tokens: int) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._secrets[key]}"}
        with httpx.Client(timeout=DEADLINE_SECONDS, trust_env=False, headers=headers) as client:
            url = f"{self._service.base_url}/v1/completions"
            answer = client.post(url, json=completion(self._profile, max_tokens=tokens))
        if answer.status_code == 200:
            self.order.append(key)
        return answer


def test_one_request_of_a_key_passes_by_the_many_of_another(keyed: Faults) -> None:
    profile = keyed.profile("shared-by-keys", SLOW, serving={"max_concurrency": 1, "queue_limit": 4})
    keyed.service.start(profile)
    with ThreadPoolExecutor(8) as pool:
        senders = Senders(keyed, profile, pool, "many", "one")
        being_served = senders.send("many", ENDLESS)
        senders.waits_for(1, 0)
        (active,) = keyed.service.client.get(f"/requests?state=active&profile={profile}").json()["items"]
        many = [senders.send("many") for _ in range(4)]
        senders.waits_for(1, 4)
        # The queue is full of one key's requests: the newest of them makes room.
        one = senders.send("one")
        displaced = next(each for each in as_completed(many)).result()
        assert (displaced.status_code, displaced.json()["error"]["code"]) == (429, "queue_full")
        assert "went for that of another key" in displaced.json()["error"]["message"]
        assert int(displaced.headers["retry-after"]) > 0
        senders.waits_for(1, 4)
        assert keyed.service.client.post(f"/requests/{active['id']}/cancel").status_code == 202
        assert being_served.result().status_code == 499
        assert one.result().status_code == 200
    assert senders.order == ["many", "one", "many", "many"]
    row = keyed.service.row(displaced)
    assert (row["client"], row["outcome"], row["status_code"]) == ("many", "rejected", 429)
    keyed.service.stop(profile)


def test_a_stop_by_hand_tells_those_who_wait_for_their_turn_too(keyed: Faults) -> None:
    profile = keyed.profile("stopped-while-busy", SLOW, serving={"max_concurrency": 1})
    keyed.service.start(profile)
    with ThreadPoolExecutor(4) as pool:
        senders = Senders(keyed, profile, pool, "stopped")
        being_served = senders.send("stopped", ENDLESS)
        senders.waits_for(1, 0)
        waiting = [senders.send("stopped") for _ in range(3)]
        senders.waits_for(1, 3)
        stopped = keyed.service.stop(profile, drain_seconds=0)
        assert being_served.result().status_code == 502
        told = [each.result() for each in waiting]
    assert [(each.status_code, each.json()["error"]["code"]) for each in told] == [(503, "profile_not_running")] * 3
    assert (stopped["state"], keyed.service.newest(profile)["id"]) == ("stopped", stopped["id"])
    assert len(keyed.facts(profile, "started")) == 1
