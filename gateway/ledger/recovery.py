"""What recovery needs of the ledger: expired leases, due doubts, and ends that are found out later."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from gateway.domain.answers import plain_result
from gateway.domain.catalogue import Replay
from gateway.domain.drafts import later_draft
from gateway.domain.outcome import CallState
from gateway.domain.ports import Doubt, Spend
from gateway.domain.reasons import ReasonCode
from gateway.ledger.database import Database
from gateway.ledger.endings import Ending
from gateway.ledger.log import read_records
from gateway.ledger.postgres import PostgresLedger
from gateway.ledger.subject_keys import SubjectKeys


class PostgresRecovery:
    """Implements the port `RecoveryLedger`."""

    def __init__(self, database: Database, ledger: PostgresLedger, keys: SubjectKeys, new_id: Callable[[], UUID]) -> None:
        self._database = database
        self._keys = keys
        self._sql = database.sql
        self._ledger = ledger
        self._new_id = new_id

    async def reap(self, tenant: str, limit: int = 64) -> int:
        """End the leases that are over: reads are abandoned, everything else is in doubt. Executes nothing."""
        async with self._database.connection() as connection:
            expired = await connection.fetch(self._sql["expired_calls"], tenant, limit)
            records = await read_records(connection, self._sql, tenant, [row["decision_id"] for row in expired])
        for row in expired:
            is_read, was = row["risk"] == "read", CallState(row["state"])
            code = (
                (ReasonCode.ABANDONED if was is CallState.RUNNING else ReasonCode.CLIENT_SILENT) if is_read else ReasonCode.OUTCOME_UNKNOWN
            )
            state = CallState.FAILED if is_read else CallState.IN_DOUBT
            problem = "lease" if was is CallState.RUNNING else "client_silent"
            draft_outcome = {"state": state.value, "phase": "lost", "problem": problem, "attempts": 1}
            ending = self._ending(
                records[row["decision_id"]],
                fence=row["fence"],
                from_states=frozenset({was}),
                state=state,
                code=code,
                spend="all" if is_read else "hold",
                outcome=draft_outcome,
                attempts=1,
            )
            await self._ledger.end(tenant, ending)
        return len(expired)

    async def take_doubts(self, tenant: str, *, hold_s: float, limit: int = 16) -> list[Doubt]:
        """Take over doubts that are due; nobody else looks at them for their lease and `hold_s` seconds more."""
        async with self._database.transaction() as connection:
            rows = await connection.fetch(self._sql["take_doubts"], tenant, limit, hold_s)
            records = await read_records(connection, self._sql, tenant, [row["decision_id"] for row in rows])
        doubts: list[Doubt] = []
        for row in rows:
            invocation = await self._keys.open_invocation(tenant, row["invocation"])
            if invocation is None:
                # A read is never in doubt and `never` is never due; what was erased only a person can tell.
                async with self._database.connection() as connection:
                    await connection.execute(self._sql["postpone_doubt"], tenant, row["decision_id"], row["fence"], None)
                continue
            doubts.append(
                Doubt(
                    tenant=tenant,
                    decision_id=row["decision_id"],
                    fence=row["fence"],
                    attempts=row["attempts"],
                    replay=Replay(row["replay"]),
                    age_s=row["age_s"],
                    agent=row["agent"],
                    subject=row["subject"],
                    run_id=row["run_id"],
                    tool=row["tool"],
                    revision=invocation["revision"],
                    args=invocation["args"],
                    context=invocation["context"],
                    record=records[row["decision_id"]],
                )
            )
        return doubts

    async def resolve(
        self, doubt: Doubt, *, state: CallState, result: Mapping[str, Any], spend: Spend, evidence: Mapping[str, Any]
    ) -> bool:
        """End a doubt that this gateway took over; False where another fence has it by now."""
        ending = self._ending(
            doubt.record,
            fence=doubt.fence,
            from_states=frozenset({CallState.IN_DOUBT}),
            state=state,
            code=ReasonCode(result["reason_code"]),
            spend=spend,
            outcome={"state": state.value, "attempts": doubt.attempts} | dict(evidence),
            attempts=doubt.attempts,
            result=result,
        )
        return await self._ledger.end(doubt.tenant, ending)

    async def postpone(self, doubt: Doubt, seconds: float | None) -> None:
        """Give a doubt back: to be looked at again after some seconds, or by a person (None)."""
        async with self._database.connection() as connection:
            await connection.execute(self._sql["postpone_doubt"], doubt.tenant, doubt.decision_id, doubt.fence, seconds)

    async def resolve_by_person(
        self, tenant: str, decision_id: UUID, *, happened: bool, evidence: str, by: str, record_id: UUID
    ) -> CallState | None:
        """End a doubt on a person's word; answers the state that the call is in now, None for an unknown call."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["get_call"], tenant, decision_id)
            if row is None:
                return None
            records = await read_records(connection, self._sql, tenant, [decision_id])
        state = CallState.SUCCEEDED if happened else CallState.OPEN
        code = ReasonCode.EXECUTION_SUCCEEDED if happened else ReasonCode.NO_EFFECT_PROVEN
        ending = self._ending(
            records[decision_id],
            fence=None,
            from_states=frozenset({CallState.IN_DOUBT}),
            state=state,
            code=code,
            spend="all" if happened else "nothing",
            outcome={"state": state.value, "method": "person", "evidence": evidence, "by": by},
            attempts=1,
            record_id=record_id,
        )
        if await self._ledger.end(tenant, ending):
            return state
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["get_call"], tenant, decision_id)
        return CallState(row["state"]) if row else None

    def _ending(
        self,
        record: Mapping[str, Any],
        *,
        fence: int | None,
        from_states: frozenset[CallState],
        state: CallState,
        code: ReasonCode,
        spend: Spend,
        outcome: Mapping[str, Any],
        attempts: int,
        result: Mapping[str, Any] | None = None,
        record_id: UUID | None = None,
    ) -> Ending:
        told = result or plain_result(code)
        draft = later_draft(
            record, record_id=record_id or self._new_id(), kind="outcome", reason_code=code.value, status=told["status"], outcome=outcome
        )
        return Ending(
            decision_id=UUID(record["decision_id"]),
            fence=fence,
            from_states=from_states,
            state=state,
            status=told["status"],
            reason_code=code.value,
            result=told,
            attempts=attempts,
            spend=spend,
            record=draft,
        )
