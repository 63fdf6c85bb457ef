"""Which profile `auto` chooses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import NoProfileFits
from app.proxy.auto import Candidate, Purpose, Speed, Wanted, choose_auto, estimated_rate, purpose_of
from app.proxy.categories import Category

CODE = Wanted(Category.CODE)


def candidate(profile_id: str, overall: float | None = None, *, ready: bool = True, **more: object) -> Candidate:
    speed = Speed() if overall is None else Speed(100, round(overall * 1000), 1000.0)
    return Candidate(profile_id, ready, overall=speed, **more)  # type: ignore[arg-type]


def with_code(profile_id: str, overall: float, code: float, requests: int) -> Candidate:
    return candidate(profile_id, overall, by_category={Category.CODE: Speed(requests, round(code * 1000), 1000.0)})


def test_the_fastest_for_the_category_takes_it() -> None:
    draft = with_code("draft", 30, 90, requests=200)
    mtp = with_code("mtp", 50, 55, requests=200)
    assert choose_auto(CODE, [mtp, draft]).profile_id == "draft"
    assert choose_auto(Wanted(Category.RAG), [mtp, draft]).profile_id == "mtp"
    choice = choose_auto(CODE, [mtp, draft])
    assert choice.reason == "auto: fastest, of those loaded"
    assert choice.detail == "auto: fastest, of those loaded (87.1 tokens/s for code)"


def test_few_samples_are_drawn_towards_the_overall_figure() -> None:
    assert estimated_rate(Category.CODE, with_code("p", 30, 90, requests=10)) == pytest.approx(60)
    assert estimated_rate(Category.CODE, with_code("p", 30, 90, requests=0)) == pytest.approx(30)
    assert estimated_rate(Category.CODE, candidate("p", 30)) == 30
    assert estimated_rate(Category.CODE, candidate("p")) is None
    # One lucky request does not beat a well-known speed.
    lucky, known = with_code("lucky", 20, 100, requests=1), candidate("known", 40)
    assert choose_auto(CODE, [lucky, known]).profile_id == "known"


def test_what_is_loaded_comes_before_what_is_faster() -> None:
    slow, fast = candidate("slow", 10), candidate("fast", 90, ready=False)
    assert choose_auto(CODE, [fast, slow]).profile_id == "slow"
    assert choose_auto(CODE, [fast, candidate("cold", 5, ready=False)]).reason == "auto: fastest, none loaded"


def test_who_cannot_take_it_is_passed_over_and_why_is_said() -> None:
    short = candidate("short", 90, context_per_slot=1000)
    blind = candidate("blind", 80)
    broken = candidate("broken", 99, is_blocked=True)
    sees = candidate("sees", 10, has_projector=True, context_per_slot=8000)
    wanted = Wanted(Category.QA, tokens=4000, has_images=True)
    assert choose_auto(wanted, [short, blind, broken, sees]).profile_id == "sees"
    assert choose_auto(Wanted(Category.QA, has_sound=True), [short, blind, sees]).profile_id == "sees"
    embeds, ranks = candidate("embeds", 99, purpose=Purpose.EMBEDDINGS), candidate("ranks", 1, purpose=Purpose.RANKING)
    vectors = Wanted(Category.OTHER, purpose=Purpose.EMBEDDINGS)
    assert choose_auto(vectors, [sees, ranks, embeds]).profile_id == "embeds"
    assert choose_auto(Wanted(Category.OTHER, purpose=Purpose.RANKING), [embeds, ranks]).profile_id == "ranks"
    assert choose_auto(CODE, [sees, embeds, ranks]).profile_id == "sees"
    with pytest.raises(NoProfileFits) as caught:
        choose_auto(Wanted(Category.QA, tokens=9000), [short, broken])
    assert "short: its context of 1000 tokens is too short for about 9000" in caught.value.message
    assert "short: its context of 1000 tokens is too short;" in caught.value.recorded
    assert "broken: it does not start" in caught.value.message


def test_equals_are_chosen_by_name_and_not_by_chance() -> None:
    assert choose_auto(CODE, [candidate("b"), candidate("a"), candidate("c")]).profile_id == "a"
    assert choose_auto(CODE, [candidate("a"), candidate("b")]).detail == "auto: no speed recorded, of those loaded"


def test_it_is_called_the_fastest_only_where_there_was_a_choice_by_speed() -> None:
    slow, fast, new = candidate("slow", 10), candidate("fast", 90, ready=False), candidate("new")
    assert choose_auto(CODE, [slow, fast]).reason == "auto: the only one, of those loaded"
    assert choose_auto(CODE, [new]).reason == "auto: the only one, of those loaded"
    assert choose_auto(CODE, [fast]).detail == "auto: the only one, none loaded (90.0 tokens/s for code)"
    assert choose_auto(CODE, [new, slow]).reason == "auto: the only one with a speed, of those loaded"
    assert choose_auto(CODE, [new, slow, candidate("other", 5)]).reason == "auto: fastest, of those loaded"


@given(st.permutations([candidate("a", 10), candidate("b", 20), candidate("c", 20), candidate("d", 5, ready=False)]))
def test_the_order_of_profiles_does_not_matter(candidates: list[Candidate]) -> None:
    assert choose_auto(CODE, candidates).profile_id == "b"


def test_what_a_server_does_by_its_flags() -> None:
    assert purpose_of(["--no-mmap"]) is Purpose.GENERATION
    assert purpose_of(["--embeddings"]) is Purpose.EMBEDDINGS
    assert purpose_of(["--embeddings", "--reranking"]) is Purpose.RANKING
