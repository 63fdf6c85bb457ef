"""Fifty clients at once for three profiles of which two fit."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures.card_service import MARGIN_BYTES, CardService, service_with_card
from fixtures.simulated_card import Giving
from fixtures.tiny_models import TinyModels

CLIENTS = 50
NAMES = ("crowd-one", "crowd-two", "crowd-three")
# A load lasts until the card has seen it, and the card is a thread among those of fifty clients.
QUICK = {"chunk_interval_seconds": 0.002, "load_seconds": 0.8}


@pytest.fixture(scope="module")
def crowd(tiny: TinyModels, nvml_library: Path) -> Iterator[CardService]:
    with service_with_card(tiny, nvml_library, yield_seconds=0.5) as running:
        for name in NAMES:
            running.profile(name, QUICK, serving={"queue_limit": 12})
        running.card.room(MARGIN_BYTES + int(2.5 * running.needed_bytes(NAMES[0])))
        running.card.gives(Giving(0.2, 2, 0.1))
        yield running


def ask_all(crowd: CardService) -> list[httpx.Response]:
    """One request of each client at once, for the profiles by turns; every second one is a stream."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(
            pool.map(
                lambda number: crowd.service.complete(NAMES[number % 3], stream=number % 2 == 0),
                range(CLIENTS),
            )
        )


def is_whole(answer: httpx.Response) -> bool:
    if answer.headers["content-type"].startswith("text/event-stream"):
        return answer.text.endswith("data: [DONE]\n\n")
    return bool(answer.json()["choices"])


def lives(crowd: CardService, profile: str) -> list[dict[str, Any]]:
    """All lives of a profile, oldest first."""
    items = crowd.service.client.get("/instances", params={"profile": profile}).json()["items"]
    return sorted(items, key=lambda life: str(life["created_at"]))


@pytest.mark.slow
def test_everybody_is_answered_or_told_why_not(crowd: CardService) -> None:
    """Earns that a crowd neither breaks the bounds of the queues nor overfills the card, and loads nothing twice."""
    answers = ask_all(crowd)
    codes = Counter(answer.status_code for answer in answers)
    assert set(codes) <= {200, 429}, codes
    # Twelve wait for each; who comes over that is told at once.
    assert codes[200] >= 36
    for answer in answers:
        if answer.status_code == 200:
            assert is_whole(answer)
        else:
            assert answer.json()["error"]["code"] == "queue_full"
            assert int(answer.headers["retry-after"]) > 0
    rows = [crowd.service.row(answer) for answer in answers]
    assert Counter(row["outcome"] for row in rows) == Counter(completed=codes[200], rejected=codes[429])
    for name in NAMES:
        of_it = lives(crowd, name)
        assert len(crowd.faults.facts(name, "started")) == len(of_it) <= 2, "loaded again before it served who waited"
        assert all(former["stopped_at"] <= latter["created_at"] for former, latter in pairwise(of_it))
    assert crowd.card.lowest_bytes >= MARGIN_BYTES


@pytest.mark.slow
def test_with_both_that_run_pinned_the_third_is_refused_and_the_others_served(crowd: CardService) -> None:
    """Earns that refusals under load are answers with their reason."""
    for name in NAMES:
        crowd.service.stop(name)
    for name in NAMES[:2]:
        crowd.service.client.patch(f"/profiles/{name}", json={"serving": {"pinned": True}})
        crowd.service.start(name)
    answers = ask_all(crowd)
    codes = [answer.status_code for answer in answers]
    assert codes[0::3] == [200] * 17
    assert codes[1::3] == [200] * 17
    assert set(codes[2::3]) <= {503, 429}
    for answer in answers[2::3]:
        said = answer.json()["error"]
        assert "residency-refused" in said["message"] if answer.status_code == 503 else said["code"] == "queue_full"
    assert crowd.card.lowest_bytes >= MARGIN_BYTES
