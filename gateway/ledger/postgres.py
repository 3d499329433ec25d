"""The ledger on PostgreSQL: reads on a connection each, writes gathered into batches (`batch.py`)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
from uuid_utils.compat import uuid7

from gateway.domain.answers import handed_out, told_of
from gateway.domain.approvals import ApprovalFact
from gateway.domain.budgets import Charge, actual_costs, charges_of
from gateway.domain.call import Authorized, CallNow, Decided, Facts, Informed, KnownCall, Normalized, Proposed, Recalled
from gateway.domain.decision import Again, ApprovalRequest, LedgerUnavailable, Refusal
from gateway.domain.drafts import not_sent_draft
from gateway.domain.outcome import CallState, Outcome, Phase
from gateway.domain.ports import Spend
from gateway.domain.reasons import ReasonCode
from gateway.domain.record import RecordDraft
from gateway.ledger.batch import Admission, Batch, Denial, End, Note, subjects_of
from gateway.ledger.claims import Binding, Key
from gateway.ledger.coalescer import Coalescer, Write
from gateway.ledger.database import CommitUnknown, Database, Row
from gateway.ledger.endings import Ending
from gateway.ledger.facts import FactsQuestion, approval_fact, facts_from_row, known_from_row, question_about
from gateway.ledger.gather import Gatherer
from gateway.ledger.grants import Question
from gateway.ledger.holdings import exhausted
from gateway.ledger.subject_keys import SubjectKeys

TRANSPORT_KEY_TTL_S = 24 * 3600.0
"""How long a transport key is answered from the ledger; afterwards it never executes again."""
UNDO_PAUSE_S = 0.5


class PostgresLedger:
    """Implements the port `Ledger`."""

    def __init__(self, database: Database, keys: SubjectKeys, *, transport_key_ttl_s: float = TRANSPORT_KEY_TTL_S) -> None:
        self._database = database
        self._keys = keys
        self._sql = database.sql
        self._ttl = transport_key_ttl_s
        self._coalescer = Coalescer(self._commit)
        self._recalls = Gatherer(self._find_holders)
        self._facts = Gatherer(self._read_facts)
        self._undoing: set[asyncio.Task[None]] = set()

    async def recall(self, tenant: str, agent: str, transport_key: bytes) -> KnownCall | None:
        """The call that holds a transport key, whatever its state."""
        return await self._opened(tenant, await self._recalls.ask(tenant, ("transport", agent, transport_key)))

    async def look_again(self, tenant: str, decision_id: UUID) -> tuple[CallState, Mapping[str, Any] | None]:
        """The state of an admitted call as it stands now, and the result of its answer once there is one."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["get_call"], tenant, decision_id)
        if row is None:
            raise LookupError(f"{decision_id} is no admitted call")
        return CallState(row["state"]), await self._result_of(tenant, decision_id, row)

    async def read_facts(self, call: Authorized, business_key: bytes | None) -> Facts | KnownCall | Refusal:
        """One snapshot: both keys, run, recent calls, approval; or the live call that holds a key; or a refusal."""
        found = facts_from_row(await self._facts.ask(call.caller.tenant, question_about(call, business_key)), call)
        return await self._opened(call.caller.tenant, found) if isinstance(found, KnownCall) else found

    async def find_standing_approval(self, call: Informed) -> ApprovalFact | None:
        """The approval that stands for a call that names none: a no in its run, else one that is pending or granted."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["standing_approval"], call.caller.tenant, call.effect_hash, call.run_id)
        return approval_fact(row) if row else None

    async def report(self, decision_id: UUID, outcome: Outcome, record: RecordDraft, result: Mapping[str, Any], *, is_read: bool) -> bool:
        """Commit what a client says of the call that it was handed: once, a read only in time; False where it does not count."""
        ending = Ending(
            decision_id=decision_id,
            fence=1,
            from_states=frozenset({CallState.PENDING_CLIENT, CallState.IN_DOUBT}),
            is_in_time_only=is_read,
            state=outcome.state,
            status=result["status"],
            reason_code=outcome.reason_code.value,
            result=result,
            spend="all" if outcome.state is CallState.SUCCEEDED else "calls",
            record=record,
        )
        return await self.end(record.tenant, ending)

    async def admit(self, call: Decided, record: RecordDraft) -> Refusal | KnownCall | Again | None:
        """Commit decision, claims, run, budgets, call and record together. None: committed, or a dry run that would be."""
        charges = _charges(call)
        if isinstance(charges, Refusal):
            return charges
        if call.is_dry_run:
            return await self._would_admit(call, charges)
        write = Admission(call=call, record=record, told=told_of(call), charges=charges)
        found = await self._coalescer.submit(call.caller.tenant, write)
        return await self._opened(call.caller.tenant, found) if isinstance(found, KnownCall) else found

    async def settle(self, call: Normalized, record: RecordDraft, result: Mapping[str, Any]) -> bool:
        """Commit the call's end, its budgets and its outcome record. Safe to repeat; False where it no longer counts."""
        outcome = call.outcome
        ending = Ending(
            decision_id=call.decision_id,
            fence=1,
            from_states=frozenset({CallState.RUNNING, CallState.IN_DOUBT}),
            is_sender=True,
            state=outcome.state,
            status=result["status"],
            reason_code=outcome.reason_code.value,
            result=result,
            attempts=call.delivered.attempts,
            spend=_spend_of(call),
            actual=actual_costs(call.tool, call.delivered.value),
            record=record,
        )
        return await self.end(call.caller.tenant, ending)

    async def end(self, tenant: str, ending: Ending) -> bool:
        """Commit an ending; False where it no longer counts (the call is elsewhere, or another fence holds it)."""
        return await self._coalescer.submit(tenant, End(ending=ending))

    async def refuse(self, call: Proposed, refusal: Refusal, record: RecordDraft, document: bytes | None) -> ApprovalRequest | None:
        """Commit the record of a refused call; with a `document` opens or finds the approval that it needs.

        A call that got as far as policy keeps its transport key bound to its input.
        """
        question = Question(call=call, document=document) if isinstance(call, Informed) and document is not None else None
        write = Denial(call=call, refusal=refusal, record=record, question=question)
        return await self._coalescer.submit(record.tenant, write)

    async def note_replay(self, call: Proposed, known: KnownCall, record: RecordDraft) -> None:
        """Commit the record of a call that was answered from the ledger, linked to the decision that it repeats.

        A transport key that was answered through the business key belongs to that decision from now on.
        """
        binding = None
        if known.kind == "business" and isinstance(call, Recalled) and call.transport_key is not None:
            key: Key = ("transport", call.caller.name, call.transport_key)
            binding = Binding(key=key, decision_id=known.decision_id, fingerprint=call.fingerprint)
        await self._coalescer.submit(record.tenant, Note(record=record, about=known.decision_id, binding=binding))

    async def note(self, record: RecordDraft, about: UUID | None) -> None:
        """Commit a record that changes nothing else, linked to the decision that it is about."""
        await self._coalescer.submit(record.tenant, Note(record=record, about=about))

    async def get_call(self, tenant: str, agent: str, decision_id: UUID) -> CallNow | None:
        """An agent's call as it stands; None where this agent has no such decision."""
        sql = self._sql
        async with self._database.connection() as connection:
            body = await connection.fetchval(sql["get_record"], tenant, decision_id)
            record = orjson.loads(body) if body else None
            if record is None or record["agent"] != agent or record["kind"] != "decision":
                return None
            row = await connection.fetchrow(sql["get_call"], tenant, decision_id)
            approval = None
            if row is None and record["approval_id"]:
                found = await connection.fetchrow(sql["get_approval_fact"], tenant, UUID(record["approval_id"]))
                approval = approval_fact(found) if found else None
        return CallNow(
            state=CallState(row["state"]) if row else CallState.OPEN,
            told=orjson.loads(row["told"]) if row and row["told"] else None,
            result=await self._result_of(tenant, decision_id, row) if row else None,
            record=record,
            approval=approval,
        )

    async def close(self) -> None:
        """Wait for the batches under way; give up taking back what may not even have been committed."""
        await self._coalescer.close()
        await self._recalls.close()
        await self._facts.close()
        for task in set(self._undoing):
            task.cancel()
        await asyncio.gather(*self._undoing, return_exceptions=True)

    async def _find_holders(self, tenant: str, keys: Sequence[Key]) -> Sequence[KnownCall | None]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["find_holders"], tenant, list(set(keys)))
        found = {(row["kind"], row["scope"], row["digest"]): known_from_row(row["kind"], row) for row in rows}
        return [found.get(key) for key in keys]

    async def _read_facts(self, tenant: str, questions: Sequence[FactsQuestion]) -> Sequence[Row]:
        asked = [(place, *question) for place, question in enumerate(questions)]
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["read_facts"], tenant, asked)
        by_place = {row["place"]: row for row in rows}
        return [by_place[place] for place in range(len(questions))]

    async def _commit(self, tenant: str, writes: Sequence[Write]) -> Sequence[Write]:
        batch = Batch(tenant, self._sql, self._ttl, writes, uuid7, await self._keys.of(tenant, subjects_of(writes)))
        try:
            async with self._database.transaction() as connection:
                await batch.run(connection)
        except CommitUnknown:
            # Nobody knows whether these are admitted. None of them is sent; what was committed is taken back.
            for write in writes:
                if isinstance(write, Admission) and write.found is None and write not in batch.postponed:
                    task = asyncio.create_task(self._take_back(tenant, write))
                    self._undoing.add(task)
                    task.add_done_callback(self._undoing.discard)
            raise
        return batch.postponed

    async def _opened(self, tenant: str, known: KnownCall | None) -> Any:
        if known is None or known.result is None:
            return known
        return replace(known, result=await self._keys.open_result(tenant, known.result))

    async def _result_of(self, tenant: str, decision_id: UUID, row: Row) -> Mapping[str, Any] | None:
        """The result of a call's answer, or what its client is to perform."""
        if row["state"] != CallState.PENDING_CLIENT.value:
            return await self._keys.open_result(tenant, orjson.loads(row["result"]) if row["result"] else None)
        needed = await self._keys.open_invocation(tenant, row["invocation"])
        if needed is None:
            return None  # erased meanwhile; it runs out
        told = orjson.loads(row["told"])
        return handed_out(told, execution_id=str(decision_id), expires_at=row["lease_until"], kind=needed["kind"], args=needed["args"])

    async def _take_back(self, tenant: str, write: Admission) -> None:
        result, draft = not_sent_draft(write.call, uuid7())
        ending = Ending(
            decision_id=write.call.decision_id,
            fence=1,
            from_states=frozenset({CallState.RUNNING, CallState.PENDING_CLIENT, CallState.IN_DOUBT}),
            is_sender=True,
            state=CallState.OPEN,
            status=result["status"],
            reason_code=result["reason_code"],
            result=result,
            spend="nothing",
            record=draft,
        )
        while True:
            await asyncio.sleep(UNDO_PAUSE_S)
            try:
                await self.end(tenant, ending)
            except LedgerUnavailable:
                continue
            return

    async def _would_admit(self, call: Decided, charges: Sequence[Charge]) -> Refusal | None:
        async with self._database.connection() as connection:
            for charge in charges:
                if charge.kind == "rate":
                    continue  # a dry run takes nothing, so it cannot be too fast
                row = await connection.fetchrow(self._sql["read_budget"], call.caller.tenant, charge.name, charge.scope, charge.period)
                used = row["reserved"] + row["spent"] if row else 0
                if used + charge.amount > charge.limit:
                    return exhausted(charge)
        return None


def _charges(call: Decided) -> tuple[Charge, ...] | Refusal:
    charges = charges_of(
        call.bundle.budgets,
        tool=call.tool,
        costs=call.costs,
        scopes={
            "run": call.run_id,
            "subject": call.principal.subject,
            "agent": call.principal.agent,
            "tenant": call.caller.tenant,
            "workflow": call.workflow_name,
            "tool": call.tool.name,
        },
        now=call.now,
    )
    if isinstance(charges, str):
        return Refusal(reason_code=ReasonCode.BUDGET_UNIT_MISSING, detail=f"budget {charges}")
    return charges


def _spend_of(call: Normalized) -> Spend:
    state = call.outcome.state
    if state is CallState.IN_DOUBT:
        return "hold"
    if state is CallState.SUCCEEDED:
        return "all"
    if call.delivered.phase is Phase.NOT_SENT or call.outcome.reason_code is ReasonCode.NO_EFFECT_PROVEN:
        return "nothing"
    # Whatever reached the tool counts as a call. A refusal of the tool costs no money; an answer that was lost may have.
    return "calls" if state is CallState.FAILED else "all"
