import pytest

from app.instances.state import InstanceState as S

ALLOWED = {
    (S.STARTING, S.LOADING), (S.STARTING, S.FAILED),
    (S.LOADING, S.READY), (S.LOADING, S.STOPPING), (S.LOADING, S.FAILED),
    (S.READY, S.DRAINING), (S.READY, S.FAILED),
    (S.DRAINING, S.STOPPING), (S.DRAINING, S.FAILED),
    (S.STOPPING, S.STOPPED), (S.STOPPING, S.FAILED),
}  # fmt: skip


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("following", S)
def test_only_the_drawn_steps(state: S, following: S) -> None:
    assert state.may_become(following) == ((state, following) in ALLOWED)


def test_terminal_states_lead_nowhere_and_every_other_leads_to_one() -> None:
    for state in S:
        assert state.is_terminal == (not any(state.may_become(other) for other in S))
