"""Only reads are sent again, only where that may help, and a tool that is down gets little more than its own load."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.outcome import Delivery, Phase
from gateway.domain.retries import RetryBudget, is_worth_retrying, pause_before
from gateway.domain.rolling import RollingCount
from tests.fakes.admitted import compile_tool
from tests.fakes.invocations import declare_http_tool

RULES: dict[str, Any] = {"no_match": {"status": [404]}, "failed": {"status": [507]}, "no_effect": {"status": [429, 503]}}
UNSENT = Delivery(phase=Phase.NOT_SENT, problem="connect")
LOST = Delivery(phase=Phase.LOST, problem="reset")


def answered(status: int | None, **more: Any) -> Delivery:
    return Delivery(phase=Phase.ANSWERED, status=status, **more)


def is_repeated(delivery: Delivery, **tool: Any) -> bool:
    return is_worth_retrying(compile_tool(declare_http_tool(**tool)), delivery)


def test_a_read_is_sent_again_after_no_answer_408_and_5xx_and_after_nothing_else():
    statuses = [status for status in range(100, 600) if is_repeated(answered(status))]
    assert statuses == [408, *range(500, 600)]
    assert is_repeated(UNSENT)
    assert is_repeated(LOST)


def test_a_read_is_sent_again_after_what_its_tool_declares_as_no_effect_and_not_after_what_it_declares_as_failed():
    statuses = [status for status in range(400, 600) if is_repeated(answered(status), result=RULES)]
    assert statuses == [408, 429, *(status for status in range(500, 600) if status != 507)]


@pytest.mark.parametrize("delivery", [UNSENT, LOST, answered(500), answered(503)])
@pytest.mark.parametrize(
    "tool",
    [
        {"risk": "write", "replay": "safe"},
        {"risk": "write", "replay": "keyed", "keyed": {"header": "Idempotency-Key", "retention": "24h"}},
        {"risk": "irreversible"},
        {"risk": "read", "replay": "never"},
    ],
)
def test_nothing_but_a_repeatable_read_is_ever_sent_again(delivery: Delivery, tool: dict[str, Any]):
    assert not is_repeated(delivery, result=RULES, **tool)


@pytest.mark.parametrize(
    "delivery",
    [
        answered(None),
        answered(None, is_rejected=True),
        Delivery(phase=Phase.LOST, problem="exception"),
        Delivery(phase=Phase.NOT_SENT, problem="address"),
    ],
)
def test_what_would_only_happen_again_is_final(delivery: Delivery):
    assert not is_repeated(delivery)


@given(chance=st.floats(0, 1, exclude_max=True), asked=st.none() | st.integers(0, 3_600_000))
def test_a_pause_is_jittered_and_never_shorter_than_asked_for(chance: float, asked: int | None):
    delivery = answered(503, retry_after_ms=asked)
    least = (asked or 0) / 1000
    assert least <= pause_before(2, delivery, chance) <= least + 0.1
    assert least <= pause_before(3, delivery, chance) <= least + 0.2


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 30), st.integers(0, 10)), max_size=60))
def test_retries_stay_below_a_tenth_of_the_calls_and_one_a_second(steps: list[tuple[float, int, int]]):
    budget, now = RetryBudget(), 0.0
    calls: list[float] = []
    retries: list[float] = []
    for gap, arriving, failing in steps:
        now += gap
        for _ in range(arriving):
            budget.count_call(now)
            calls.append(now)
        for _ in range(failing):
            if budget.take(now):
                retries.append(now)
                # At each retry; later its calls may leave the window before it does.
                recent_calls, recent_retries = (sum(now - 10 < at <= now for at in times) for times in (calls, retries))
                assert recent_retries <= 10 + 0.1 * recent_calls


def test_a_quiet_tool_may_retry_ten_times_in_ten_seconds():
    budget = RetryBudget()
    assert [budget.take(0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not budget.take(9.9)
    assert budget.take(10.0)


def test_a_busy_tool_may_retry_a_tenth_of_its_calls_more():
    budget = RetryBudget()
    for _ in range(100):
        budget.count_call(0.0)
    assert sum(budget.take(0.0) for _ in range(100)) == 20


@given(st.lists(st.floats(0, 5), max_size=100))
def test_a_rolling_count_sees_nine_tenths_of_its_window_and_never_more_than_all_of_it(gaps: list[float]):
    count, now = RollingCount(window_s=10.0), 0.0
    times: list[float] = []
    for gap in gaps:
        now += gap
        count.add(now)
        times.append(now)
        assert sum(at > now - 9 for at in times) <= count.total(now) <= sum(at > now - 10.000001 for at in times)
