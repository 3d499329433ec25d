"""Approvals as people see and answer them; what calls do with grants is in `grants.py`."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from gateway.domain.approvals import PEOPLE_NEEDED, Approval, ApprovalState, PersonsAnswer, Verdict, state_now
from gateway.domain.drafts import approval_draft
from gateway.domain.ports import Suggestion
from gateway.domain.reasons import ReasonCode
from gateway.ledger.database import Connection, Database, Row
from gateway.ledger.grants import expiries
from gateway.ledger.log import Entry, append_records, read_records

_BATCH = 64


class PostgresApprovals:
    """Implements the port `Approvals`."""

    def __init__(self, database: Database, new_id: Callable[[], UUID]) -> None:
        self._database = database
        self._sql = database.sql
        self._new_id = new_id

    async def find(self, tenant: str, approval_id: UUID) -> Approval | None:
        """An approval with all answers to it; None where this tenant has none of that id."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["get_approval"], tenant, approval_id)
        return _approval(row) if row else None

    async def page(
        self, tenant: str, state: ApprovalState, *, permissions: Sequence[str], person: str, after: UUID | None, limit: int
    ) -> Sequence[Approval]:
        """Approvals in a state that need one of `permissions`, or the `person` itself as their subject; oldest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["list_approvals"], tenant, state.value, list(permissions), person, after, limit)
        return [_approval(row) for row in rows]

    async def answer(
        self,
        tenant: str,
        approval_id: UUID,
        verdict: Verdict,
        *,
        person: str,
        comment: str | None,
        suggestion: Suggestion | None,
        record_id: UUID,
    ) -> bool:
        """Commit one person's answer with its record; False where it no longer counts or this person has answered already."""
        sql = self._sql
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(sql["lock_approval"], tenant, approval_id)
            if row is None or state_now(row["state"], is_expired=row["is_expired"]) is not ApprovalState.PENDING:
                return False
            if await connection.fetchval(sql["insert_answer"], tenant, approval_id, person, verdict, comment) is None:
                return False
            agreed = await connection.fetchval(sql["count_agreed"], tenant, approval_id)
            code, state = _outcome_of(verdict, is_enough=agreed >= PEOPLE_NEEDED[row["rule"]])
            if state is not ApprovalState.PENDING:
                suggested = orjson.dumps(suggestion.args) if suggestion else None
                await connection.execute(sql["end_approval"], tenant, approval_id, state.value, suggested)
            said: dict[str, Any] = {"answer": verdict, "by": person, "comment": comment, "state": state.value, "rule": row["rule"]}
            if suggestion is not None:
                said["suggested_args_digest"] = suggestion.digest
            await self._record(connection, tenant, row["decision_id"], record_id, code, said)
        return True

    async def note_refused(self, tenant: str, approval_id: UUID, verdict: Verdict, *, by: str, objection: str, record_id: UUID) -> None:
        """Commit the record of an answer by somebody who may not give it; nothing where there is no such approval."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(self._sql["get_approval"], tenant, approval_id)
            if row is not None:
                said = {"answer": verdict, "by": by, "refused": objection, "state": row["state"]}
                await self._record(connection, tenant, approval_id, record_id, ReasonCode.PERMISSION_MISSING, said)

    async def expire(self, tenant: str) -> int:
        """End the approvals whose time is over, each with its record; answers how many."""
        sql = self._sql
        async with self._database.transaction() as connection:
            over = await connection.fetch(sql["take_expired_approvals"], tenant, _BATCH)
            if over:
                await connection.execute(sql["expire_approvals"], tenant, [row["approval_id"] for row in over])
                await append_records(connection, sql, tenant, await expiries(connection, sql, tenant, over, self._new_id))
        return len(over)

    async def _record(
        self, connection: Connection, tenant: str, asked_by: UUID, record_id: UUID, code: ReasonCode, said: dict[str, Any]
    ) -> None:
        asked = (await read_records(connection, self._sql, tenant, [asked_by]))[asked_by]
        draft = approval_draft(asked, record_id=record_id, reason_code=code, outcome=said)
        await append_records(connection, self._sql, tenant, [Entry(draft, asked_by, {})])


def _outcome_of(verdict: Verdict, *, is_enough: bool) -> tuple[ReasonCode, ApprovalState]:
    if verdict == "deny":
        return ReasonCode.APPROVAL_DENIED, ApprovalState.DENIED
    if is_enough:
        return ReasonCode.APPROVAL_GRANTED, ApprovalState.GRANTED
    return ReasonCode.SECOND_APPROVAL_REQUIRED, ApprovalState.PENDING


def _approval(row: Row) -> Approval:
    found: dict[str, Any] = dict(row)
    found["request"] = orjson.loads(row["request"])
    found["suggested_args"] = orjson.loads(row["suggested_args"]) if row["suggested_args"] else None
    answers: list[dict[str, Any]] = orjson.loads(row["answers"]) if row["answers"] else []
    found["answers"] = tuple(
        PersonsAnswer(person=given["person"], answer=given["answer"], comment=given["comment"], at=datetime.fromisoformat(given["at"]))
        for given in answers
    )
    return Approval(**found)
