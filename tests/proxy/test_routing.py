import pytest

from app.errors import AccessDenied, ModelNotNamed, ModelUnknown
from app.proxy.caller import Caller
from app.proxy.routing import choose_profile, route_reason

ONE = {"small": "small", "org/small:latest": "small"}
TWO = ONE | {"großes": "large", "large": "large"}


@pytest.mark.parametrize(
    ("model", "names", "profile_id", "reason"),
    [
        ("small", TWO, "small", "id"),
        ("org/small:latest", TWO, "small", "alias"),
        ("großes", TWO, "large", "alias"),
        (None, ONE, "small", "only"),
        ("", ONE, "small", "only"),
    ],
)
def test_a_model_leads_to_a_profile(model: str | None, names: dict[str, str], profile_id: str, reason: str) -> None:
    assert choose_profile(model, names) == profile_id
    assert route_reason(model, profile_id) == reason


def test_an_unknown_model_is_told_which_names_there_are() -> None:
    with pytest.raises(ModelUnknown, match=r'no profile answers to "Small"; there are: großes, large, org/small'):
        choose_profile("Small", TWO)


def test_an_unknown_model_is_not_the_only_profile() -> None:
    with pytest.raises(ModelUnknown):
        choose_profile("gpt-4", ONE)


def test_without_a_model_there_must_be_one_profile() -> None:
    with pytest.raises(ModelNotNamed, match="there are: großes, large"):
        choose_profile(None, TWO)
    with pytest.raises(ModelNotNamed, match="POST /profiles"):
        choose_profile(None, {})


def test_the_names_that_are_shown_are_bounded() -> None:
    names = {f"p{number:04}": f"p{number:04}" for number in range(1000)}
    with pytest.raises(ModelUnknown) as caught:
        choose_profile("x" * 10_000, names)
    assert len(caught.value.message) < 1000
    assert caught.value.message.endswith("p0049 and 950 more")


LIMITED = Caller("web", frozenset({"small"}))


def test_who_may_use_some_profiles_gets_no_other_by_any_of_its_names() -> None:
    assert choose_profile("org/small:latest", TWO, LIMITED) == "small"
    for model in ("large", "großes"):
        with pytest.raises(AccessDenied, match="the key 'web' may use small only, not 'large'") as refused:
            choose_profile(model, TWO, LIMITED)
        assert refused.value.details["status"] == 403


def test_who_may_use_some_profiles_hears_of_no_other() -> None:
    assert choose_profile(None, TWO, LIMITED) == "small"
    with pytest.raises(ModelUnknown, match=r"there are: org/small:latest, small$"):
        choose_profile("larg", TWO, LIMITED)
