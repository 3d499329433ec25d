"""What a call costs and which budgets it draws on: pure rules over declarations, amounts in micro-units."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo

from gateway.domain.canonical import canonical_json
from gateway.domain.catalogue import MICRO, Budget, CostFromArgument, Tool, Window
from gateway.domain.references import read_pointer

CALLS = "calls"
"""The unit that every call costs one of."""

MAX_AMOUNT = 9_000_000_000 * MICRO
"""The largest amount of one call, in micro-units; sums of them fit a PostgreSQL bigint."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """An amount to hold of one budget row before a call runs. Amount and limit in micro-units."""

    name: str
    scope: str
    period: str
    unit: str
    amount: int
    limit: int


def cost_of(tool: Tool, args: Mapping[str, Any]) -> dict[str, int]:
    """Unit -> micro-units that the tool declares for these arguments, rounded up; units without a usable amount are left out."""
    costs: dict[str, int] = {}
    for unit, rule in tool.declaration.cost.items():
        amount = to_micro(read_pointer(args, rule.arg)) if isinstance(rule, CostFromArgument) else rule
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
        amount = MICRO if budget.unit == CALLS else costs.get(budget.unit)
        if amount is None:
            return budget.name
        run = [scopes["agent"], scopes["run"]]  # a run belongs to its agent
        scope = [run if per == "run" else scopes[per] for per in budget.per]
        charges.append(
            Charge(
                name=budget.name,
                scope=canonical_json(scope).decode(),
                period=period_of(budget.window, now),
                unit=budget.unit,
                amount=amount,
                limit=budget.limit,
            )
        )
    return tuple(sorted(charges, key=lambda charge: (charge.name, charge.scope, charge.period)))


def period_of(window: Window | None, now: datetime) -> str:
    """The key of the window that `now` (aware) falls into, in the window's own time zone; ``total`` without a window."""
    if window is None:
        return "total"
    local = now.astimezone(ZoneInfo(window.timezone))
    start: dict[Literal["hour", "day", "week", "month"], str] = {
        # With its offset: the repeated hour at the end of daylight saving is two windows.
        "hour": local.isoformat(timespec="hours"),
        "day": local.date().isoformat(),
        "week": (local.date() - timedelta(days=local.weekday())).isoformat(),
        "month": local.date().replace(day=1).isoformat(),
    }
    return f"{window.every} {start[window.every]} {window.timezone}"


def _covers(budget: Budget, tool: Tool, workflow: str) -> bool:
    if budget.workflows is not None and workflow not in budget.workflows:
        return False
    if budget.tools is not None:
        return tool.name in budget.tools
    return budget.unit == CALLS or budget.unit in tool.declaration.cost
