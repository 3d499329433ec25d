"""What a call costs and which budgets it draws on: pure rules over declarations, amounts in micro-units."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo

from gateway.domain.canonical import canonical_json
from gateway.domain.catalogue import MICRO, Budget, BudgetKind, CostFromArgument, Tool, Window
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import read_pointer

CALLS = "calls"
"""The unit that every call costs one of."""
RATE, CONCURRENCY = "rate", "concurrency"
"""Stand for the unit in what budgets of these kinds book; no tool may have a cost in them."""
OWN_UNITS = frozenset({CALLS, RATE, CONCURRENCY})

TOTAL = "total"
"""The period of what never starts anew."""

MAX_AMOUNT = 9_000_000_000 * MICRO
"""The largest amount of one call, in micro-units; sums of them fit a PostgreSQL bigint."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What a call takes of one budget row before it runs. Amount and limit in micro-units.

    An ``amount`` is held, then spent. ``concurrency`` holds one of n places (unit and period are always the same) and is
    never spent. A ``rate`` holds nothing: it moves the row's arrival time (`take_rate`).
    """

    name: str
    scope: str
    period: str
    unit: str
    amount: int
    limit: int
    kind: BudgetKind = "amount"
    interval_us: int = 0
    """Rates only: microseconds from one call to the next, rounded up."""
    burst: int = 0
    """Rates only: calls that may come at once."""

    @property
    def refusal_code(self) -> ReasonCode:
        """What a call is told that finds no room here."""
        match self.kind:
            case "rate":
                return ReasonCode.RATE_LIMITED
            case "concurrency":
                return ReasonCode.CONCURRENCY_LIMITED
            case "amount":
                return ReasonCode.BUDGET_CALLS_EXHAUSTED if self.unit == CALLS else ReasonCode.BUDGET_COST_EXHAUSTED


@dataclass(frozen=True, kw_only=True)
class RateRefusal:
    """A call that came too early; at the earliest after `retry_after_ms` there is room for it."""

    retry_after_ms: int


def cost_of(tool: Tool, args: Mapping[str, Any]) -> dict[str, int]:
    """Unit -> micro-units that the tool declares for these arguments, rounded up; units without a usable amount are left out."""
    costs: dict[str, int] = {}
    for unit, rule in tool.declaration.cost.items():
        amount = to_micro(read_pointer(args, rule.arg)) if isinstance(rule, CostFromArgument) else rule
        if amount is not None:
            costs[unit] = amount
    return costs


def actual_costs(tool: Tool, data: Any) -> dict[str, int]:
    """Unit -> micro-units that the tool's answer says it cost, rounded up; units of which it says nothing usable are left out.

    `data` is the answer as it was delivered, before anything is redacted. What is left out costs what was reserved.
    """
    costs: dict[str, int] = {}
    for unit, rule in tool.declaration.actual.items():
        amount = to_micro(read_pointer(data, rule.result))
        if amount is not None:
            costs[unit] = amount
    return costs


def to_micro(value: object) -> int | None:
    """A JSON number (or decimal in a string) in micro-units, rounded up; None for what is no amount."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        # The shortest text of a float is the number that was written; the float itself is not.
        micro = (Decimal(str(value)) * MICRO).to_integral_value(rounding=ROUND_CEILING)
        return int(micro) if 0 <= micro <= MAX_AMOUNT else None
    except ArithmeticError:  # no number at all, or NaN, which compares with nothing
        return None


def charges_of(
    budgets: Iterable[Budget], *, tool: Tool, costs: Mapping[str, int], scopes: Mapping[str, str], now: datetime
) -> tuple[Charge, ...] | str:
    """What a call must hold, in lock order; or the name of a budget whose unit the call has no amount for.

    A budget covers a tool when it lists it, or lists none and the tool declares a cost in its unit (or it counts calls).
    """
    charges: list[Charge] = []
    for budget in budgets:
        if not _covers(budget, tool, scopes["workflow"]):
            continue
        run = [scopes["agent"], scopes["run"]]  # a run belongs to its agent
        scope = canonical_json([run if per == "run" else scopes[per] for per in budget.per]).decode()
        charge = _charge_of(budget, scope, costs, now)
        if charge is None:
            return budget.name
        charges.append(charge)
    return tuple(sorted(charges, key=lambda charge: (charge.name, charge.scope, charge.period)))


def booked_unit(budget: Budget) -> str:
    """The unit that charges of this budget carry: its own, ``rate`` or ``concurrency``."""
    return budget.unit or budget.kind


def booked_limit(budget: Budget) -> int | None:
    """What a row of this budget may hold, in micro-units; None for a rate, which holds nothing."""
    return budget.limit if budget.concurrency is None else budget.concurrency * MICRO


def take_rate(tat_us: int | None, now_us: int, charge: Charge) -> int | RateRefusal:
    """The row's next theoretical arrival time where the call conforms, by the generic cell rate algorithm (ITU-T I.371).

    `tat_us` is the row's last one, None for a new row; both times in microseconds of one clock. Over any stretch of time T
    at most `burst` + T / `interval_us` calls conform. A refused call changes nothing.
    """
    arrival = now_us if tat_us is None else max(tat_us, now_us)
    too_early = arrival - now_us - (charge.burst - 1) * charge.interval_us
    if too_early > 0:
        return RateRefusal(retry_after_ms=-(-too_early // 1000))
    return arrival + charge.interval_us


def period_of(window: Window | None, now: datetime) -> str:
    """The key of the window that `now` (aware) falls into, in the window's own time zone; ``total`` without a window."""
    if window is None:
        return TOTAL
    local = now.astimezone(ZoneInfo(window.timezone))
    start: dict[Literal["hour", "day", "week", "month"], str] = {
        # With its offset: the repeated hour at the end of daylight saving is two windows.
        "hour": local.isoformat(timespec="hours"),
        "day": local.date().isoformat(),
        "week": (local.date() - timedelta(days=local.weekday())).isoformat(),
        "month": local.date().replace(day=1).isoformat(),
    }
    return f"{window.every} {start[window.every]} {window.timezone}"


def _charge_of(budget: Budget, scope: str, costs: Mapping[str, int], now: datetime) -> Charge | None:
    if budget.unit is not None and budget.limit is not None:
        amount = MICRO if budget.unit == CALLS else costs.get(budget.unit)
        if amount is None:
            return None
        period = period_of(budget.window, now)
        return Charge(name=budget.name, scope=scope, period=period, unit=budget.unit, amount=amount, limit=budget.limit)
    if budget.rate is not None:
        rate = budget.rate
        burst = rate.burst or rate.limit
        # Rounded up: a little slower than declared, never faster.
        interval_us = -(-round(rate.per * 1_000_000) // rate.limit)
        limits = {"limit": burst * MICRO, "interval_us": interval_us, "burst": burst}
        return Charge(name=budget.name, scope=scope, period=TOTAL, unit=RATE, amount=MICRO, kind="rate", **limits)
    places = (budget.concurrency or 0) * MICRO
    return Charge(name=budget.name, scope=scope, period=TOTAL, unit=CONCURRENCY, amount=MICRO, limit=places, kind="concurrency")


def _covers(budget: Budget, tool: Tool, workflow: str) -> bool:
    if budget.workflows is not None and workflow not in budget.workflows:
        return False
    if budget.tools is not None:
        return tool.name in budget.tools
    return budget.kind != "amount" or budget.unit == CALLS or budget.unit in tool.declaration.cost
