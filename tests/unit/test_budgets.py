"""Budgets: amounts are exact and rounded up, windows begin at local midnight also when clocks change."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.budgets import period_of, to_micro
from gateway.domain.catalogue import Window, parse_amount, parse_duration

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
