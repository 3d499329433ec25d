"""What budgets must say: each its own name, limits that leave room, units that something costs, windows on a real clock."""

from collections import Counter
from collections.abc import Iterator

from gateway.bundle.catalogue_files import Catalogue, Placed
from gateway.bundle.timezones import has_zone
from gateway.domain.budgets import CALLS
from gateway.domain.catalogue import MICRO, Budget
from gateway.domain.findings import Finding
from gateway.domain.suggestions import suggest

_LONGEST_PER = 86_400.0
_FASTEST = 100_000.0


def check_budgets(catalogue: Catalogue) -> Iterator[Finding]:
    """Names, units, limits, windows, and the tools and workflows that budgets name."""
    units = {unit for tool in catalogue.tools.values() for unit in tool.value.cost} | {CALLS}
    names = Counter(budget.value.name for budget in catalogue.budgets)
    seen: set[str] = set()
    for budget in catalogue.budgets:
        name, source = budget.value.name, budget.source
        if names[name] > 1 and name in seen:
            yield source.finding(
                "/name", "budget-repeated", f"two budgets are called `{name}`", "Rename one: what was spent is booked under the name."
            )
        seen.add(name)
        yield from _check_amount(budget, units)
        yield from _check_rate(budget)
        if len(set(budget.value.per)) < len(budget.value.per):
            yield source.finding("/per", "entry-repeated", "`per` names something twice", "Remove one.")
        if budget.value.window is not None and not has_zone(budget.value.window.timezone):
            zone = budget.value.window.timezone
            yield source.finding(
                "/window/timezone",
                "timezone-unknown",
                f"there is no time zone `{zone}`",
                "Use a name of the IANA list, such as Europe/Paris.",
            )
        yield from _check_budget_scope(budget, catalogue, has_unit=budget.value.unit in units)


def _check_amount(budget: Placed[Budget], units: set[str]) -> Iterator[Finding]:
    unit, limit, source = budget.value.unit, budget.value.limit, budget.source
    if unit is None or limit is None:
        return
    if unit not in units:
        yield source.finding(
            "/unit",
            "unit-unknown",
            f"no tool has a cost in `{unit}`; units: {', '.join(sorted(units))}",
            suggest(unit, units, "Add the unit to a tool's `cost`, or correct it."),
        )
    if limit == 0:
        mend = "Raise the limit, or take the tools out of their workflows."
        yield source.finding("/limit", "limit-zero", "a limit of 0 refuses every call", mend)
    if unit == CALLS and limit % MICRO:
        yield source.finding("/limit", "limit-not-whole", "a number of calls is a whole number", "Write a whole number, such as 40.")


def _check_rate(budget: Placed[Budget]) -> Iterator[Finding]:
    rate = budget.value.rate
    if rate is None:
        return
    if not 0 < rate.per <= _LONGEST_PER:
        message = "`per` must be from 1ms to 24h"
        mend = "Choose a short stretch, such as 1s; for a limit per day or month use `limit` with a `window`."
        yield budget.source.finding("/rate/per", "duration-range", message, mend)
    elif rate.limit / rate.per > _FASTEST:
        message = f"a rate is at most {_FASTEST:,.0f} calls a second"
        yield budget.source.finding("/rate/limit", "rate-too-fast", message, "Lower `limit`, or remove the budget.")


def _check_budget_scope(budget: Placed[Budget], catalogue: Catalogue, *, has_unit: bool) -> Iterator[Finding]:
    for index, name in enumerate(budget.value.tools or ()):
        tool = catalogue.tools.get(name)
        if tool is None:
            yield budget.source.finding(
                f"/tools/{index}",
                "tool-unknown",
                f"there is no tool `{name}`",
                suggest(name, catalogue.tools, "Correct the name, or remove the entry."),
            )
        elif has_unit and budget.value.unit != CALLS and budget.value.unit not in tool.value.cost:
            message = f"`{name}` declares no cost in `{budget.value.unit}`, so every call of it would be refused"
            yield budget.source.finding(
                f"/tools/{index}",
                "cost-missing",
                message,
                f"Add `cost: {{{budget.value.unit}: …}}` to tools/{name}.yaml, or remove the entry.",
            )
    for index, name in enumerate(budget.value.workflows or ()):
        if name not in catalogue.workflows:
            yield budget.source.finding(
                f"/workflows/{index}",
                "workflow-unknown",
                f"there is no workflow `{name}`",
                suggest(name, catalogue.workflows, "Correct the name, or remove the entry."),
            )
