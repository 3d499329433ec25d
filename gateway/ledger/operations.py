"""What operators see and do: calls by state, a person's word on a doubt, budgets."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from gateway.domain.budgets import booked_limit, booked_unit
from gateway.domain.catalogue import Budget, Replay
from gateway.domain.outcome import CallState
from gateway.domain.ports import BudgetRow, CallSummary
from gateway.ledger.database import Database, Row
from gateway.ledger.recovery import PostgresRecovery


class PostgresOperations:
    """Implements the port `Operations`."""

    def __init__(self, database: Database, recovery: PostgresRecovery, budgets_of: Callable[[str], Iterable[Budget]]) -> None:
        self._database = database
        self._sql = database.sql
        self._recovery = recovery
        self._budgets_of = budgets_of

    async def list_calls(self, tenant: str, state: CallState, *, after: UUID | None, limit: int) -> Sequence[CallSummary]:
        """Calls in a state, oldest first; `after` is the last decision id of the page before."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["list_calls"], tenant, state.value, after, limit)
        return [_summary(row) for row in rows]

    async def resolve_call(
        self, tenant: str, decision_id: UUID, *, happened: bool, evidence: str, by: str, record_id: UUID
    ) -> CallState | None:
        """End the doubt about a call on a person's word."""
        return await self._recovery.resolve_by_person(tenant, decision_id, happened=happened, evidence=evidence, by=by, record_id=record_id)

    async def list_budgets(self, tenant: str, *, after: tuple[str, str, str] | None, limit: int) -> Sequence[BudgetRow]:
        """Budgets that were ever drawn on, by (name, scope, period); `after` is the last key of the page before."""
        declared = {budget.name: budget for budget in self._budgets_of(tenant)}
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["list_budgets"], tenant, *(after or (None, None, None)), limit)
        return [
            BudgetRow(
                **dict(row),
                unit=booked_unit(declared[row["name"]]) if row["name"] in declared else "",
                limit=booked_limit(declared[row["name"]]) if row["name"] in declared else None,
            )
            for row in rows
        ]


def _summary(row: Row) -> CallSummary:
    found: dict[str, Any] = dict(row)
    found["state"], found["replay"] = CallState(row["state"]), Replay(row["replay"])
    return CallSummary(**found)
