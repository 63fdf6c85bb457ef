import logging

import pytest

from app.access.refusals import Refusal, Refusals, delay_seconds
from app.errors import AccessDenied


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def denied(reason: Refusal = Refusal.UNKNOWN) -> AccessDenied:
    return AccessDenied("no", status=401, reason=reason.value)


def test_the_delay_grows_and_is_bounded() -> None:
    assert [delay_seconds(count) for count in range(5, 12)] == [0, 0.25, 0.5, 1, 2, 4, 4]
    assert delay_seconds(10**9) == 4


def test_wrong_keys_are_slowed_by_address_after_a_few() -> None:
    refusals = Refusals(Clock())
    delays = [refusals.note(denied(), "10.0.0.1") for _ in range(7)]
    assert delays == [0, 0, 0, 0, 0, 0.25, 0.5]
    assert refusals.note(denied(), "10.0.0.2") == 0


@pytest.mark.parametrize("reason", sorted(set(Refusal) - {Refusal.UNKNOWN}))
def test_other_refusals_are_counted_and_not_slowed(reason: Refusal) -> None:
    refusals = Refusals(Clock())
    assert {refusals.note(denied(reason), "10.0.0.1") for _ in range(20)} == {0.0}
    assert refusals.counts() == {each.value: 20 if each is reason else 0 for each in Refusal}


def test_time_heals() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    for _ in range(9):
        refusals.note(denied(), "10.0.0.1")
    clock.now += 599
    assert refusals.note(denied(), "10.0.0.1") == 4
    clock.now += 601
    assert refusals.note(denied(), "10.0.0.1") == 0


def test_a_network_of_ipv6_is_one_household() -> None:
    refusals = Refusals(Clock())
    delays = [refusals.note(denied(), f"2001:db8:1:2::{number:x}") for number in range(7)]
    assert delays[-1] == 0.5
    assert refusals.note(denied(), "2001:db8:1:3::1") == 0
    mapped = [refusals.note(denied(), "::ffff:10.0.0.1") for _ in range(5)]
    assert mapped == [0] * 5
    assert refusals.note(denied(), "10.0.0.1") == 0.25
    # Whatever a server calls its client must not fail.
    assert refusals.note(denied(), "") == refusals.note(denied(), "fe80::1%eth0") == 0


def test_memory_is_bounded_and_who_is_active_is_remembered() -> None:
    refusals = Refusals(Clock(), addresses_most=3)
    for number in range(10):
        refusals.note(denied(), "10.0.0.1")
        refusals.note(denied(), f"10.0.1.{number}")
        refusals.note(denied(), f"10.0.2.{number}")
    assert refusals.note(denied(), "10.0.0.1") == 4
    assert refusals.note(denied(), "10.0.1.0") == 0


def test_an_address_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(Clock())
    with caplog.at_level(logging.DEBUG):
        for _ in range(20):
            refusals.note(denied(), "10.0.0.1")
    assert [record.getMessage() for record in caplog.records] == [
        "10.0.0.1 has shown 6 wrong keys: it waits for further answers"
    ]


def test_rows_of_refusals_are_so_many_a_minute_from_all_addresses_and_for_all_reasons() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    reasons = [Refusal.MISSING, Refusal.UNKNOWN, Refusal.EXPIRED, Refusal.FOREIGN_ORIGIN]
    assert [refusals.may_leave_row(denied(reasons[number % 4])) for number in range(90)] == [True] * 60 + [False] * 30
    assert refusals.may_leave_row(denied(Refusal.NOT_PERMITTED)), "it shows a right key"
    clock.now += 10
    assert sum(refusals.may_leave_row(denied()) for _ in range(90)) == 10
    clock.now += 100_000
    assert sum(refusals.may_leave_row(denied()) for _ in range(90)) == 60
