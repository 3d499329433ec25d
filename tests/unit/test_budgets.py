"""Budgets: amounts are exact and rounded up, windows begin at local midnight also when clocks change."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.budgets import (
    Charge,
    RateRefusal,
    actual_costs,
    booked_limit,
    booked_unit,
    charges_of,
    period_of,
    take_rate,
    to_micro,
)
from gateway.domain.catalogue import Budget, Window, parse_amount, parse_duration
from gateway.domain.reasons import ReasonCode
from tests.fakes.admitted import compile_tool
from tests.fakes.invocations import declare_http_tool

BERLIN = ZoneInfo("Europe/Berlin")
DAY = Window(every="day", timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "micro"),
    [(200, 200_000_000), (4.35, 4_350_000), (0.1, 100_000), ("0.10", 100_000), (0.0000001, 1), (0, 0), (1e-300, 1)],
)
def test_counts_money_in_millionths_and_rounds_up(value: Any, micro: int):
    assert to_micro(value) == micro


@pytest.mark.parametrize("value", [None, True, "x", -1, float("nan"), float("inf"), 1e30, [], {}])
def test_has_no_amount_for_what_is_none(value: Any):
    assert to_micro(value) is None


@given(st.decimals(min_value=0, max_value=9_000_000_000, places=6, allow_nan=False))
def test_keeps_every_decimal_of_six_places_exactly(amount: Any):
    assert parse_amount(str(amount)) == to_micro(str(amount)) == int(amount * 1_000_000)


@pytest.mark.parametrize("text", ["1.0000001", "-1", "1e30", "NaN", "", 1.5, True, None])
def test_refuses_limits_that_are_no_exact_amount(text: Any):
    with pytest.raises(ValueError, match="decimal"):
        parse_amount(text)


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("8s", 8), ("30m", 1800), ("24h", 86400), ("7d", 604800)])
def test_reads_durations(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["8", "8 s", "-1s", "1.5s", "", 8, None, "٣s"])
def test_refuses_what_is_no_duration(text: Any):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize("day", [(2026, 11, 30), (2026, 10, 25), (2027, 3, 28)])  # an ordinary day, one of 25 hours, one of 23
def test_begins_a_day_at_local_midnight(day: tuple[int, int, int]):
    last = datetime(*day, 23, 59, 59, tzinfo=BERLIN)
    first = datetime.fromtimestamp(last.timestamp() + 1, tz=UTC)
    assert period_of(DAY, last.astimezone(UTC)) == f"day {day[0]}-{day[1]:02}-{day[2]:02} Europe/Berlin"
    assert period_of(DAY, first) != period_of(DAY, last)
    assert first.astimezone(BERLIN).hour == 0


def test_tells_the_repeated_hour_apart():
    hour = Window(every="hour", timezone="Europe/Berlin")
    before, after = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert before.astimezone(BERLIN).hour == after.astimezone(BERLIN).hour == 2
    assert period_of(hour, before) != period_of(hour, after)


def test_names_weeks_by_their_monday_and_months_by_their_first_day():
    now = datetime(2026, 12, 2, 12, tzinfo=UTC)
    assert period_of(Window(every="week"), now) == "week 2026-11-30 UTC"
    assert period_of(Window(every="month"), now) == "month 2026-12-01 UTC"
    assert period_of(None, now) == "total"


SCOPES = {"run": "run-1", "subject": "ada", "agent": "an-agent", "tenant": "default", "workflow": "taking", "tool": "a_tool"}
NOON = datetime(2026, 12, 2, 12, tzinfo=UTC)


def budget(**says: Any) -> Budget:
    return Budget.model_validate({"name": "a_budget", "per": ["subject"], **says})


def charged(*budgets: Budget, cost: dict[str, Any] | None = None, **costs: int) -> tuple[Charge, ...] | str:
    tool = compile_tool(declare_http_tool(cost=cost or {}))
    return charges_of(budgets, tool=tool, costs=costs, scopes=SCOPES, now=NOON)


def test_charges_of_amounts_are_what_they_were_before_there_were_kinds():
    calls = budget(name="run_calls", per=["run"], unit="calls", limit=40)
    usd = budget(name="spend", unit="usd", limit="500.00", window={"every": "day", "timezone": "UTC"})
    assert charged(usd, calls, cost={"usd": "0.05"}, usd=50_000) == (
        Charge(name="run_calls", scope='[["an-agent","run-1"]]', period="total", unit="calls", amount=1_000_000, limit=40_000_000),
        Charge(name="spend", scope='["ada"]', period="day 2026-12-02 UTC", unit="usd", amount=50_000, limit=500_000_000),
    )


def test_charges_of_every_kind_come_in_lock_order():
    places = budget(name="c_places", per=["tenant"], concurrency=4)
    rate = budget(name="b_rate", per=["agent", "tool"], rate={"limit": 20, "per": "1s", "burst": 40}, tools=["a_tool"])
    amount = budget(name="a_calls", unit="calls", limit=1)
    assert charged(places, rate, amount) == (
        Charge(name="a_calls", scope='["ada"]', period="total", unit="calls", amount=1_000_000, limit=1_000_000),
        Charge(
            name="b_rate",
            scope='["an-agent","a_tool"]',
            period="total",
            unit="rate",
            amount=1_000_000,
            limit=40_000_000,
            kind="rate",
            interval_us=50_000,
            burst=40,
        ),
        Charge(
            name="c_places",
            scope='["default"]',
            period="total",
            unit="concurrency",
            amount=1_000_000,
            limit=4_000_000,
            kind="concurrency",
        ),
    )


def test_a_rate_without_a_burst_lets_its_limit_come_at_once_and_is_never_faster_than_declared():
    (charge,) = charged(budget(rate={"limit": 3, "per": "1s"}))
    assert isinstance(charge, Charge)
    assert (charge.burst, charge.interval_us) == (3, 333_334)


def test_rates_and_places_cover_the_tools_that_they_list_or_all():
    for kind in ({"concurrency": 1}, {"rate": {"limit": 1, "per": "1s"}}):
        assert len(charged(budget(**kind))) == 1
        assert charged(budget(**kind, tools=["another_tool"])) == ()
        assert charged(budget(**kind, workflows=["another"])) == ()


def test_a_listed_tool_without_an_amount_names_the_budget():
    assert charged(budget(unit="usd", limit=1, tools=["a_tool"])) == "a_budget"


def test_says_under_which_unit_and_limit_a_budget_is_booked():
    kinds = [budget(unit="usd", limit="1.50"), budget(concurrency=3), budget(rate={"limit": 1, "per": "1s"})]
    assert [(booked_unit(each), booked_limit(each)) for each in kinds] == [("usd", 1_500_000), ("concurrency", 3_000_000), ("rate", None)]


def test_names_the_code_of_what_found_no_room():
    kinds: list[dict[str, Any]] = [{"unit": "calls", "limit": 1}, {"concurrency": 1}, {"rate": {"limit": 1, "per": "1s"}}]
    codes = [charge.refusal_code for kind in kinds for charge in charged(budget(**kind)) if isinstance(charge, Charge)]
    (usd,) = charged(budget(unit="usd", limit=1), cost={"usd": "0.05"}, usd=1)
    assert isinstance(usd, Charge)
    assert [*codes, usd.refusal_code] == [
        ReasonCode.BUDGET_CALLS_EXHAUSTED,
        ReasonCode.CONCURRENCY_LIMITED,
        ReasonCode.RATE_LIMITED,
        ReasonCode.BUDGET_COST_EXHAUSTED,
    ]


@pytest.mark.parametrize(
    ("data", "costs"),
    [
        ({"charged": {"usd": 12.5}}, {"usd": 12_500_000}),
        ({"charged": {"usd": "0.0000001"}}, {"usd": 1}),
        ({"charged": {"usd": 0}, "used": 7}, {"usd": 0, "tokens": 7_000_000}),
        ({"charged": {"usd": -1}}, {}),
        ({"charged": {"usd": "much"}}, {}),
        ({"charged": {}}, {}),
        (None, {}),
        ([], {}),
    ],
)
def test_reads_what_an_answer_says_it_cost(data: Any, costs: dict[str, int]):
    tool = compile_tool(
        declare_http_tool(cost={"usd": "20", "tokens": 9}, actual={"usd": {"result": "/charged/usd"}, "tokens": {"result": "/used"}})
    )
    assert actual_costs(tool, data) == costs


def rate_charge(*, interval_us: int, burst: int) -> Charge:
    return Charge(name="r", scope="[]", period="total", unit="rate", amount=1, limit=1, kind="rate", interval_us=interval_us, burst=burst)


@given(
    interval_us=st.integers(1, 10_000),
    burst=st.integers(1, 20),
    gaps=st.lists(st.integers(0, 30_000), max_size=60),
)
def test_over_any_stretch_of_time_a_rate_admits_its_burst_and_what_the_time_gives(interval_us: int, burst: int, gaps: list[int]):
    charge, tat, now = rate_charge(interval_us=interval_us, burst=burst), None, 1_000_000
    admitted: list[int] = []
    for gap in gaps:
        now += gap
        taken = take_rate(tat, now, charge)
        if isinstance(taken, int):
            tat = taken
            admitted.append(now)
    for first, begin in enumerate(admitted):
        for last in range(first, len(admitted)):
            assert last - first + 1 <= burst + (admitted[last] - begin) / interval_us


@given(interval_us=st.integers(1, 10_000_000), burst=st.integers(1, 20), ahead=st.integers(0, 10**9))
def test_a_call_that_waits_as_it_is_told_is_admitted(interval_us: int, burst: int, ahead: int):
    charge = rate_charge(interval_us=interval_us, burst=burst)
    taken = take_rate(ahead, 0, charge)
    if isinstance(taken, RateRefusal):
        assert taken.retry_after_ms > 0
        assert isinstance(take_rate(ahead, taken.retry_after_ms * 1000, charge), int)


def test_a_rate_takes_the_burst_at_once_then_one_an_interval():
    charge, tat = rate_charge(interval_us=50_000, burst=3), None
    for _ in range(3):
        tat = take_rate(tat, 0, charge)
        assert isinstance(tat, int)
    assert tat == 150_000
    assert take_rate(tat, 0, charge) == RateRefusal(retry_after_ms=50)
    assert take_rate(tat, 49_999, charge) == RateRefusal(retry_after_ms=1)
    assert take_rate(tat, 50_000, charge) == 200_000


def test_a_clock_that_goes_backwards_opens_no_rate():
    charge = rate_charge(interval_us=50_000, burst=1)
    tat = take_rate(None, 1_000_000, charge)
    assert isinstance(tat, int)
    assert take_rate(tat, 0, charge) == RateRefusal(retry_after_ms=1050)
