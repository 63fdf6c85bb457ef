"""What engines count of their drafts, from their own counters to rows, series and /stats: exact on tiny models."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.shapes import SHAPES, Shape
from fixtures.tiny_models import TinyModels
from service import InFlight, Service, completion, eventually, running_service, settings_for, short_folder

WRONG = replace(
    next(shape for shape in SHAPES if shape.id == "draft-wrong"), patch={"speculation": {"draft_tokens_max": 3}}
)
NGRAM = next(shape for shape in SHAPES if shape.id == "ngram-simple")
BASELINE = next(shape for shape in SHAPES if shape.id == "baseline")
LONG_CONTEXT_TOKENS = 1 << 18
# One request of 32 tokens: 28 tokens in 10 drafts, and where they were accepted.
DRAFTS, DRAFT_TOKENS, ACCEPTED, BY_POSITION = 10, 28, 21, (9, 8, 4)


@dataclass(frozen=True)
class Stage:
    service: Service
    file: Path

    def rows(self, profile_id: str) -> list[dict[str, Any]]:
        """The windows of a profile, oldest first."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            found = connection.execute(
                "SELECT w.*, c.profile_id, c.revision, c.method, c.engine_build, c.argv_hash, c.device_set "
                "FROM acceptance_window w JOIN launch_context c ON c.id = w.context_id "
                "WHERE c.profile_id = ? ORDER BY w.id",
                (profile_id,),
            )
            return [dict(row) for row in found]

    def counted(self, profile_id: str, **labels: str) -> list[float | None]:
        names = ("drafts", "draft_tokens", "accepted_tokens")
        return [
            self.service.metric(f"paceline_spec_decode_num_{name}_total", profile=profile_id, **labels)
            for name in names
        ]

    def acceptance(self, group_by: str, **query: str) -> list[Any]:
        answer = self.service.client.get("/stats", params={"group_by": group_by, **query})
        assert answer.status_code == 200, answer.text
        return [item["engine_acceptance"] for item in answer.json()["items"]]


@pytest.fixture(scope="module", params=["embedded", pytest.param("built", marks=pytest.mark.engine)])
def stage(request: pytest.FixtureRequest, tiny: TinyModels) -> Iterator[Stage]:
    engine = "embedded" if request.param == "embedded" else str(request.getfixturevalue("engine_path"))
    with short_folder() as folder:
        settings = settings_for(folder, tiny.dense_target.parent, engine=engine)
        with running_service(settings) as service:
            yield Stage(service, Path(settings.data_dir) / "paceline.db")


def _add(stage: Stage, tiny: TinyModels, shape: Shape, name: str) -> str:
    return stage.service.add({**shape.document(tiny), "id": name})


def test_a_short_life_loses_nothing(stage: Stage, tiny: TinyModels) -> None:
    name = _add(stage, tiny, WRONG, "short-life")
    assert stage.counted(name, method="draft") == [0, 0, 0]
    assert stage.service.metric("paceline_spec_decode_num_accepted_tokens_per_pos_total", profile=name) is None

    instance = stage.service.start(name)
    stage.service.complete(name)
    row = stage.service.row(stage.service.stream(name)[0])
    ended = stage.service.stop(name)
    assert (ended["state"], ended["exit_code"]) == ("stopped", 0)

    (window,) = eventually(lambda: stage.rows(name) or None)
    assert (window["drafts"], window["draft_tokens"], window["accepted_tokens"]) == (
        2 * DRAFTS, 2 * DRAFT_TOKENS, 2 * ACCEPTED,
    )  # fmt: skip
    assert json.loads(window["accepted_by_position"]) == [2 * count for count in BY_POSITION]
    assert (window["generated_tokens"], window["rounded_to"]) == (64, 1)
    assert 0 < window["generation_us"] < 10_000_000
    assert f"{window['instance_id']:016x}" == instance["id"]
    assert 0 <= window["ended_at_milliseconds"] - window["started_at_milliseconds"] < 60_000
    for column in ("profile_id", "revision", "method", "engine_build", "argv_hash", "device_set"):
        assert window[column] == row[column]


def test_series_go_on_over_lives_and_leave_with_the_profile(stage: Stage, tiny: TinyModels) -> None:
    name = _add(stage, tiny, WRONG, "two-lives")
    for life in (1, 2):
        stage.service.start(name)
        stage.service.complete(name)
        stage.service.stop(name)
        assert stage.counted(name, method="draft") == [life * DRAFTS, life * DRAFT_TOKENS, life * ACCEPTED]
        for position, accepted in enumerate(BY_POSITION):
            series = "paceline_spec_decode_num_accepted_tokens_per_pos_total"
            assert stage.service.metric(series, profile=name, position=str(position)) == life * accepted
    assert stage.service.client.delete(f"/profiles/{name}").status_code == 204
    assert stage.counted(name) == [None, None, None]


def test_what_answers_cannot_tell_is_counted(stage: Stage, tiny: TinyModels) -> None:
    """The engine's Anthropic answers say nothing of drafts."""
    name = _add(stage, tiny, WRONG, "anthropic")
    stage.service.start(name)
    answer = stage.service.client.post(
        "/v1/messages",
        json={"model": name, "max_tokens": 32, "temperature": 0, "messages": [{"role": "user", "content": "abc"}]},
    )
    assert answer.status_code == 200, answer.text
    assert stage.service.row(answer)["draft_tokens"] is None
    stage.service.stop(name)
    drafts, draft_tokens, accepted = stage.counted(name)
    assert (drafts or 0) > 0
    assert (draft_tokens or 0) >= (accepted or 0) > 0
    assert stage.service.metric("paceline_request_draft_tokens_total", profile=name) is None


def test_what_is_cut_off_is_counted_too(stage: Stage, tiny: TinyModels) -> None:
    name = stage.service.add(
        {**WRONG.document(tiny), "id": "cut-off", "context": {"threads": 1, "size": LONG_CONTEXT_TOKENS}}
    )
    stage.service.start(name)
    request = InFlight(stage.service, completion(name, stream=True, max_tokens=LONG_CONTEXT_TOKENS))
    assert request.has_begun()
    # Nobody waits for it: its answer never tells what was drafted.
    ended = stage.service.stop(name, drain_seconds=0)
    assert (ended["state"], ended["exit_code"]) == ("stopped", 0)
    request.outcome()
    drafts, draft_tokens, accepted = stage.counted(name)
    assert (drafts or 0) > 0
    assert (draft_tokens or 0) > (accepted or 0) > 0


def test_stats_have_the_exact_lengths_and_rates(stage: Stage, tiny: TinyModels) -> None:
    wrong, ngram, plain = (_add(stage, tiny, shape, f"stats-{shape.id}") for shape in (WRONG, NGRAM, BASELINE))
    for name, asked in ((wrong, {}), (ngram, {"prompt": NGRAM.prompt, "max_tokens": NGRAM.tokens}), (plain, {})):
        stage.service.start(name)
        stage.service.row(stage.service.complete(name, **asked))
        stage.service.stop(name)

    def told() -> list[Any] | None:
        found = stage.acceptance("profile,revision,method", profile=wrong)
        return found if found != [None] else None

    expected = {
        "drafts": DRAFTS, "draft_tokens": DRAFT_TOKENS, "accepted_tokens": ACCEPTED,
        "acceptance_rate": ACCEPTED / DRAFT_TOKENS, "mean_acceptance_length": 1 + ACCEPTED / DRAFTS,
        "acceptance_rate_by_position": [count / DRAFTS for count in BY_POSITION], "rounded_to": 1,
    }  # fmt: skip
    assert eventually(told) == [expected]
    assert stage.acceptance("", profile=wrong) == [expected]
    assert stage.acceptance("hour", profile=wrong) == [expected]
    (found,) = stage.acceptance("profile", profile=ngram)
    assert found["accepted_tokens"] == found["draft_tokens"] == NGRAM.counts(NGRAM.document(tiny)).draft_n
    assert found["acceptance_rate_by_position"][0] == 1
    assert len(found["acceptance_rate_by_position"]) == 5
    assert stage.acceptance("profile", profile=plain) == [None]
    # Requests are of a category; windows are of all traffic.
    assert stage.acceptance("profile,category", profile=wrong) == [None]
    assert stage.acceptance("profile", profile=wrong, outcome="completed") == [None]
    assert stage.acceptance("profile", profile=wrong, until="2020-01-01T00:00:00Z") == []
