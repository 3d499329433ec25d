"""A breaker opens when a service mostly fails, lets exactly one call find out, and never counts what says nothing about it."""

from dataclasses import dataclass

import pytest

from gateway.domain.outcome import Delivery, Phase
from gateway.executors.breaker import Breaker, Permit

FAILURES = [
    Delivery(phase=Phase.LOST, problem="timeout"),
    Delivery(phase=Phase.LOST, problem="reset"),
    Delivery(phase=Phase.NOT_SENT, problem="connect"),
    Delivery(phase=Phase.NOT_SENT, problem="timeout"),
    Delivery(phase=Phase.ANSWERED, status=500),
    Delivery(phase=Phase.ANSWERED, status=503),
]
ANSWERS = [Delivery(phase=Phase.ANSWERED, status=status) for status in (200, 302, 400, 404, 408, 429)]
FAILED, FINE = FAILURES[0], ANSWERS[0]


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def take(breaker: Breaker) -> Permit:
    permit = breaker.take()
    assert isinstance(permit, Permit)
    return permit


def call(breaker: Breaker, delivery: Delivery, times: int = 1) -> None:
    for _ in range(times):
        permit = take(breaker)
        permit.record(delivery)
        permit.release()


@pytest.mark.parametrize("failure", FAILURES)
def test_opens_at_the_twentieth_failure_and_says_when_to_come_back(breaker: Breaker, failure: Delivery):
    call(breaker, failure, 19)
    assert breaker.is_closed
    call(breaker, failure)
    assert breaker.take() == 5000


@pytest.mark.parametrize("answer", ANSWERS)
def test_never_opens_for_answers_below_500(breaker: Breaker, answer: Delivery):
    call(breaker, answer, 100)
    assert breaker.is_closed


def test_opens_at_half_and_not_below(breaker: Breaker):
    call(breaker, FINE, 11)
    call(breaker, FAILED, 10)
    assert breaker.is_closed
    call(breaker, FAILED)
    assert not breaker.is_closed


def test_opens_when_the_twentieth_answer_is_a_good_one_too(breaker: Breaker):
    call(breaker, FAILED, 19)
    call(breaker, FINE)
    assert not breaker.is_closed


def test_forgets_what_is_longer_ago_than_ten_seconds(breaker: Breaker, clock: Clock):
    call(breaker, FAILED, 19)
    clock.now += 10
    call(breaker, FAILED, 19)
    assert breaker.is_closed


def test_counts_over_a_rolling_window(breaker: Breaker, clock: Clock):
    for _ in range(19):
        call(breaker, FAILED)
        clock.now += 0.4
    assert breaker.is_closed
    call(breaker, FAILED)
    assert not breaker.is_closed


def open_breaker(breaker: Breaker) -> None:
    call(breaker, FAILED, 20)


def test_lets_nothing_through_while_it_is_open(breaker: Breaker, clock: Clock):
    open_breaker(breaker)
    clock.now += 4.9995
    assert breaker.take() == 1


def test_lets_exactly_one_call_through_when_its_time_is_over(breaker: Breaker, clock: Clock):
    open_breaker(breaker)
    clock.now += 5
    trial = take(breaker)
    assert [breaker.take() for _ in range(50)] == [1000] * 50
    trial.record(FINE)
    trial.release()
    assert breaker.is_closed


def test_counts_anew_after_it_closed(breaker: Breaker, clock: Clock):
    open_breaker(breaker)
    clock.now += 5
    call(breaker, FINE)
    call(breaker, FAILED, 19)
    assert breaker.is_closed
    call(breaker, FAILED)
    assert not breaker.is_closed


def test_stays_open_as_long_again_when_the_trial_fails(breaker: Breaker, clock: Clock):
    open_breaker(breaker)
    clock.now += 5
    call(breaker, FAILED)
    assert breaker.take() == 5000


@pytest.mark.parametrize("problem", [None, "address", "fault"])
def test_a_trial_that_found_nothing_out_makes_room_for_the_next(breaker: Breaker, clock: Clock, problem: str | None):
    open_breaker(breaker)
    clock.now += 5
    trial = take(breaker)
    if problem is not None:
        trial.record(Delivery(phase=Phase.NOT_SENT, problem=problem))
    trial.release()
    assert not breaker.is_closed
    take(breaker)


def test_what_is_our_own_fault_does_not_count(breaker: Breaker):
    call(breaker, Delivery(phase=Phase.NOT_SENT, problem="address"), 100)
    assert breaker.is_closed


def test_calls_that_end_while_it_is_open_decide_nothing(breaker: Breaker, clock: Clock):
    early = [take(breaker) for _ in range(30)]
    open_breaker(breaker)
    for permit in early:
        permit.record(FINE)
        permit.release()
    clock.now += 1
    assert breaker.take() == 4000


def test_a_repeat_goes_only_through_a_closed_breaker(breaker: Breaker, clock: Clock):
    permit = take(breaker)
    assert permit.may_repeat()
    open_breaker(breaker)
    assert not permit.may_repeat()
    clock.now += 5
    trial = take(breaker)
    trial.record(FAILED)
    assert not trial.may_repeat()
