"""Invariants about budgets. Amounts in micro-units."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.faults.run_index import RunIndex


def check_limits(run: RunIndex) -> Iterator[str]:
    """B1: no admission ever went above a limit, at its own commit and in the end."""
    for record in run.dump.records:
        for entry in _entries(record.document):
            limit, held = entry.get("limit"), entry.get("held")
            if held is not None and limit is not None and entry["reserved"] + entry["spent"] > limit:
                yield f"record {record.position} admitted {entry['name']} to {entry['reserved'] + entry['spent']} of {limit}"
    for row in run.dump.budgets:
        facts = run.setup.budgets.get(row.budget[0])
        if facts is not None and row.reserved + row.spent > facts.limit:
            yield f"budget {row.budget} holds {row.reserved} + {row.spent} of {facts.limit}"


def check_sums(run: RunIndex) -> Iterator[str]:
    """B2: a budget's reserved is the sum of what is held, its spent the sum of what was settled."""
    held: Counter[tuple[str, str, str]] = Counter()
    settled: Counter[tuple[str, str, str]] = Counter()
    for hold in run.dump.holds:
        held[hold.budget] += hold.amount if hold.state == "held" else 0
        settled[hold.budget] += hold.settled if hold.state == "settled" else 0
    for row in run.dump.budgets:
        if (row.reserved, row.spent) != (held[row.budget], settled[row.budget]):
            yield f"budget {row.budget} says {row.reserved} + {row.spent}, its reservations {held[row.budget]} + {settled[row.budget]}"


def check_spending(run: RunIndex) -> Iterator[str]:
    """B3: effects never cost more than the limit, counted by the tools themselves."""
    for name, facts in run.setup.budgets.items():
        if facts.per != ("run",) or facts.unit == "calls":
            continue
        spent: Counter[str] = Counter()
        for call_id, applied in run.applied.items():
            record = run.records.get(call_id)
            if record is not None and applied[0].tool in facts.tools:
                spent[str(record.document["run_id"])] += len(applied) * run.tool(applied[0].tool).costs.get(facts.unit, 0)
        for scope, amount in spent.items():
            if amount > facts.limit:
                yield f"effects of {scope} cost {amount} of {facts.limit} of {name}"


def check_held_once(run: RunIndex) -> Iterator[str]:
    """B4: a reservation leaves `held` at most once."""
    for call_id, endings in run.endings.items():
        booked: Counter[str] = Counter()
        for _, record in endings:
            booked.update(str(entry["name"]) for entry in _entries(record.document) if entry.get("settled") is not None)
        for name, times in booked.items():
            if times > 1:
                yield f"call {call_id} settled {name} {times} times"


def check_holds_follow_calls(run: RunIndex) -> Iterator[str]:
    """B5: nothing is held for a call that has ended, and everything for one that has not."""
    held: Counter[str] = Counter(hold.call_id for hold in run.dump.holds if hold.state == "held")
    for call in run.dump.calls:
        is_open = call.state in {"running", "in_doubt", "pending_client"}
        if not is_open and held[call.id]:
            yield f"call {call.id} is {call.state} and still holds {held[call.id]} reservations"
        record = run.records.get(call.id)
        wanted = sum(entry.get("held") is not None for entry in _entries(record.document)) if record else 0
        if is_open and held[call.id] < wanted:
            yield f"call {call.id} is {call.state} and holds {held[call.id]} of its {wanted} reservations"


def _entries(document: Any) -> list[dict[str, Any]]:
    return document.get("budgets") or []


BUDGET_RULES: dict[str, Callable[[RunIndex], Iterator[str]]] = {
    "B1": check_limits,
    "B2": check_sums,
    "B3": check_spending,
    "B4": check_held_once,
    "B5": check_holds_follow_calls,
}
