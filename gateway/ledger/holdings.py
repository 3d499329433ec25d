"""Runs, versions, budgets and rates inside a batch: locked once, reckoned in memory in order of arrival, written once."""

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
        self._holds: list[tuple[Decided, Charge]] = []
        self.ordinals: dict[UUID, int] = {}
        """Of admitted calls: the version that they made of (subject, tool)."""

    async def lock_runs(self, connection: Connection, calls: Sequence[Decided], failed: Iterable[tuple[str, str]]) -> None:
        """Lock the runs of admissions and of failed calls, and the versions that admissions compare."""
        wanted = {(call.principal.agent, call.run_id): (call.workflow_name, call.principal.subject) for call in reversed(calls)}
        for run in failed:
            wanted.setdefault(run, ("", ""))  # it stands already; nothing of this is stored
        if wanted:
            rows = await connection.fetch(
                self._sql["lock_runs"],
                self._tenant,
                [agent for agent, _ in wanted],
                [run_id for _, run_id in wanted],
                [workflow for workflow, _ in wanted.values()],
                [subject for _, subject in wanted.values()],
            )
            for row in rows:
                self._runs[row["agent"], row["run_id"]] = _Run(
                    row["workflow"], row["subject"], row["calls"], row["failures"], row["is_cancelled"]
                )
        pairs = {(call.principal.subject, call.tool.name) for call in calls if call.tool.declaration.facts == "all"}
        if pairs:
            rows = await connection.fetch(
                self._sql["lock_subject_tools"], self._tenant, [subject for subject, _ in pairs], [tool for _, tool in pairs]
            )
            self._versions = {(row["subject"], row["tool"]): row["version"] for row in rows}

    async def lock_budgets(self, connection: Connection, places: set[Place], rates: set[tuple[str, str]]) -> None:
        """Lock budgets, then rates."""
        if places:
            rows = await connection.fetch(self._sql["lock_budgets"], self._tenant, *_columns(sorted(places)))
            self._budgets = {(row["name"], row["scope"], row["period"]): _Budget(row["reserved"], row["spent"]) for row in rows}
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
        """Write everything that was locked."""
        sql, tenant = self._sql, self._tenant
        if self._runs:
            rows = [(agent, run_id, run.calls, run.failures) for (agent, run_id), run in self._runs.items()]
            await connection.execute(sql["write_runs"], tenant, *_columns(rows))
        if self._versions:
            await connection.execute(
                sql["write_subject_tools"], tenant, *_columns([(*pair, version) for pair, version in self._versions.items()])
            )
        if self._budgets:
            rows = [(*place, budget.reserved, budget.spent) for place, budget in self._budgets.items()]
            await connection.execute(sql["write_budgets"], tenant, *_columns(rows))
        if self._rates:
            await connection.execute(
                sql["write_rates"], tenant, *_columns([(*place, rate.arrival_us) for place, rate in self._rates.items()])
            )

    async def write_holds(self, connection: Connection) -> None:
        """Write the holds of admitted calls, after the calls themselves."""
        if self._holds:
            rows = [
                (call.decision_id, charge.name, charge.scope, charge.period, charge.unit, charge.amount) for call, charge in self._holds
            ]
            await connection.execute(self._sql["insert_reservations"], self._tenant, *_columns(rows))

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
