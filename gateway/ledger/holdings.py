"""Runs, versions, budgets and rates inside a batch: locked once, reckoned in memory in order of arrival.

Locking a row raises it already by all that the batch wants of it, since a second version of a row costs as much as the lock.
What was not let in after all is written again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.domain.budgets import Charge, RateRefusal, take_rate
from gateway.domain.call import Decided
from gateway.domain.decision import Again, Refusal
from gateway.domain.reasons import ReasonCode
from gateway.ledger.database import Connection, Statements

Place = tuple[str, str, str]
"""Name, scope and period of a budget."""


@dataclass
class _Run:
    workflow: str
    subject: str
    calls: int
    failures: int
    is_cancelled: bool


@dataclass
class _Budget:
    reserved: int
    spent: int


@dataclass
class _Rate:
    arrival_us: int
    now_us: int


class Holdings:
    """Everything countable that a batch touches."""

    def __init__(self, tenant: str, sql: Statements) -> None:
        self._tenant = tenant
        self._sql = sql
        self._runs: dict[tuple[str, str], _Run] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._budgets: dict[Place, _Budget] = {}
        self._rates: dict[tuple[str, str], _Rate] = {}
        self._stored: dict[Any, Any] = {}
        """What stands in the database by now of runs, versions and budgets, by their keys."""
        self._holds: list[tuple[Decided, Charge]] = []
        self.ordinals: dict[UUID, int] = {}
        """Of admitted calls: the version that they made of (subject, tool)."""

    async def lock_runs(self, connection: Connection, calls: Sequence[Decided], failed: Iterable[tuple[str, str]]) -> None:
        """Lock the runs of admissions and of failed calls, and the versions that admissions compare."""
        failures = Counter(failed)
        admissions = Counter((call.principal.agent, call.run_id) for call in calls)
        # A run that only failed stands already: nothing of its empty names is stored.
        pins = dict.fromkeys(failures, ("", ""))
        pins |= {(call.principal.agent, call.run_id): (call.workflow_name, call.principal.subject) for call in reversed(calls)}
        pairs = Counter((call.principal.subject, call.tool.name) for call in calls if call.tool.declaration.facts == "all")
        if not pins:
            return
        runs = [(*run, *pin, admissions[run], failures[run]) for run, pin in pins.items()]
        versions = [(*pair, count) for pair, count in pairs.items()]
        for row in await connection.fetch(self._sql["raise_runs"], self._tenant, runs, versions):
            if row["tool"] is None:
                key = row["agent"], row["run_id"]
                self._stored["run", key] = row["calls"], row["failures"]
                calls_before, failures_before = row["calls"] - admissions[key], row["failures"] - failures[key]
                self._runs[key] = _Run(row["workflow"], row["subject"], calls_before, failures_before, row["is_cancelled"])
            else:
                key = row["subject"], row["tool"]
                self._stored["version", key] = row["version"]
                self._versions[key] = row["version"] - pairs[key]

    async def lock_budgets(self, connection: Connection, charges: Sequence[Charge], ended: Iterable[Place]) -> None:
        """Lock the budgets of charges, reserved already, and of calls that end here; then the rates of charges."""
        reserved = Counter[Place](dict.fromkeys(ended, 0))
        for charge in charges:
            if charge.kind != "rate":
                reserved[charge.name, charge.scope, charge.period] += charge.amount
        if reserved:
            wanted = [(*place, amount, 0) for place, amount in reserved.items()]
            for row in await connection.fetch(self._sql["raise_budgets"], self._tenant, wanted):
                place = (row["name"], row["scope"], row["period"])
                self._stored["budget", place] = row["reserved"], row["spent"]
                self._budgets[place] = _Budget(row["reserved"] - reserved[place], row["spent"])
        rates = {(charge.name, charge.scope) for charge in charges if charge.kind == "rate"}
        if rates:
            rows = await connection.fetch(self._sql["lock_rates"], self._tenant, *_columns(sorted(rates)))
            self._rates = {(row["name"], row["scope"]): _Rate(row["arrival_us"], row["now_us"]) for row in rows}

    def admit(self, call: Decided, charges: Sequence[Charge]) -> list[dict[str, Any]] | Refusal | Again:
        """Count a call in and hold what it costs: everything or nothing. Answers the budget entries of its record."""
        run = self._runs[call.principal.agent, call.run_id]
        if run.is_cancelled:
            return Refusal(reason_code=ReasonCode.RUN_CANCELLED)
        if (run.workflow, run.subject) != (call.workflow_name, call.principal.subject):
            return Refusal(reason_code=ReasonCode.RUN_MISMATCH)
        pair = (call.principal.subject, call.tool.name)
        is_versioned = call.tool.declaration.facts == "all"
        if is_versioned and (run.calls, self._versions[pair]) != (call.facts.run_version, call.facts.tool_version):
            return Again(stage="facts")
        arrivals = self._arrivals(charges)
        if isinstance(arrivals, Refusal):
            return arrivals
        for place, arrival in arrivals.items():
            self._rates[place].arrival_us = arrival
        entries: list[dict[str, Any]] = []
        for charge in charges:
            if charge.kind != "rate":
                budget = self._budgets[charge.name, charge.scope, charge.period]
                budget.reserved += charge.amount
                self._holds.append((call, charge))
                entries.append(_entry(charge.name, charge.unit, budget) | {"held": charge.amount, "limit": charge.limit})
        run.calls += 1
        if is_versioned:
            self._versions[pair] += 1
            self.ordinals[call.decision_id] = self._versions[pair]
        return entries

    def book(self, place: Place, unit: str, held: int, spent: int) -> dict[str, Any]:
        """Turn a hold into spending, which may be more or less than was held. Answers the record's budget entry."""
        budget = self._budgets[place]
        budget.reserved -= held
        budget.spent += spent
        return _entry(place[0], unit, budget) | {"settled": spent}

    def count_failure(self, run: tuple[str, str]) -> None:
        """One more failed call of a run."""
        self._runs[run].failures += 1

    async def write(self, connection: Connection) -> None:
        """Write what differs from what locking has stored."""
        sql, tenant, stored = self._sql, self._tenant, self._stored
        runs = [
            (*key, None, None, run.calls, run.failures)
            for key, run in self._runs.items()
            if (run.calls, run.failures) != stored["run", key]
        ]
        if runs:
            await connection.execute(sql["write_runs"], tenant, runs)
        versions = [(*key, version) for key, version in self._versions.items() if version != stored["version", key]]
        if versions:
            await connection.execute(sql["write_subject_tools"], tenant, versions)
        budgets = [
            (*place, budget.reserved, budget.spent)
            for place, budget in self._budgets.items()
            if (budget.reserved, budget.spent) != stored["budget", place]
        ]
        if budgets:
            await connection.execute(sql["write_budgets"], tenant, budgets)
        if self._rates:
            await connection.execute(
                sql["write_rates"], tenant, *_columns([(*place, rate.arrival_us) for place, rate in self._rates.items()])
            )

    def holds(self) -> list[tuple[Any, ...]]:
        """What admitted calls hold, as rows."""
        return [(call.decision_id, charge.name, charge.scope, charge.period, charge.unit, charge.amount) for call, charge in self._holds]

    def _arrivals(self, charges: Sequence[Charge]) -> dict[tuple[str, str], int] | Refusal:
        """The new arrival times of the rates among `charges`, or the refusal of the first charge that finds no room."""
        arrivals: dict[tuple[str, str], int] = {}
        for charge in charges:
            if charge.kind == "rate":
                rate = self._rates[charge.name, charge.scope]
                arrival = take_rate(rate.arrival_us, rate.now_us, charge)
                if isinstance(arrival, RateRefusal):
                    return Refusal(reason_code=charge.refusal_code, retry_after_ms=arrival.retry_after_ms, detail=f"budget {charge.name}")
                arrivals[charge.name, charge.scope] = arrival
            elif not self._has_room(charge):
                return exhausted(charge)
        return arrivals

    def _has_room(self, charge: Charge) -> bool:
        budget = self._budgets[charge.name, charge.scope, charge.period]
        return budget.reserved + budget.spent + charge.amount <= charge.limit


def exhausted(charge: Charge) -> Refusal:
    """The refusal of a call that a budget has no room for."""
    return Refusal(reason_code=charge.refusal_code, detail=f"budget {charge.name}")


def _entry(name: str, unit: str, budget: _Budget) -> dict[str, Any]:
    return {"name": name, "unit": unit, "reserved": budget.reserved, "spent": budget.spent}


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
