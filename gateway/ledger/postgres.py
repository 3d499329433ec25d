"""The ledger on PostgreSQL: every write is one transaction that takes its locks in one order.

The order is: control row, claims, run, budgets, approvals, log head, each sorted by key.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

import orjson

from gateway.domain.budgets import CALLS, Charge, charges_of
from gateway.domain.call import Authorized, CallNow, Decided, Facts, Informed, KnownCall, Normalized, Proposed
from gateway.domain.catalogue import BusinessKey
from gateway.domain.decision import ApprovalRequest, LedgerUnavailable, Refusal
from gateway.domain.outcome import CallState, Phase
from gateway.domain.ports import Activation
from gateway.domain.reasons import Effect, ReasonCode
from gateway.domain.record import RecordDraft
from gateway.ledger.database import Connection, Database, Rollback, Row
from gateway.ledger.facts import facts_from_row, known_from_row
from gateway.ledger.log import append_record

TRANSPORT_KEY_TTL_S = 24 * 3600.0
"""How long a transport key is answered from the ledger; afterwards it never executes again."""


class PostgresLedger:
    """Implements the port `Ledger`."""

    def __init__(self, database: Database, *, transport_key_ttl_s: float = TRANSPORT_KEY_TTL_S) -> None:
        self._database = database
        self._sql = database.sql
        self._ttl = transport_key_ttl_s

    async def activate(self, tenant: str, revision: str, record: RecordDraft, *, replace: bool) -> Activation | str:
        """Put `revision` in force with its record, or answer the other active revision when not `replace`."""
        sql = self._sql
        try:
            async with self._database.transaction() as connection:
                await connection.execute(sql["insert_control"], tenant, secrets.token_bytes(32))
                await connection.execute(sql["insert_log_head"], tenant)
                control = await connection.fetchrow(sql["lock_control"], tenant)
                if control is None:
                    raise LedgerUnavailable("control row vanished")
                if control["revision"] == revision:
                    raise Rollback(Activation(revision=revision, epoch=control["epoch"], digest_key=control["digest_key"], changed=False))
                if control["revision"] and not replace:
                    raise Rollback(control["revision"])
                epoch = await connection.fetchval(sql["update_control"], tenant, revision)
                await append_record(connection, sql, record, None)
                return Activation(revision=revision, epoch=epoch, digest_key=control["digest_key"], changed=True)
        except Rollback as stop:
            if isinstance(stop.found, Activation | str):
                return stop.found
            raise

    async def recall(self, tenant: str, agent: str, transport_key: bytes) -> KnownCall | None:
        """The call that holds a transport key, whatever its state."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["find_claim"], tenant, "transport", agent, transport_key)
        return known_from_row("transport", row) if row else None

    async def read_facts(self, call: Authorized, business_key: bytes | None) -> Facts | KnownCall | Refusal:
        """One snapshot: run, recent calls, approval; or the live call that holds the business key; or RUN_MISMATCH."""
        approval_id = _uuid_or_none(call.call.approval_id)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                self._sql["read_facts"],
                call.caller.tenant,
                call.principal.agent,
                call.run_id,
                call.principal.subject,
                call.tool.name,
                call.fingerprint,
                approval_id,
                business_key,
            )
        return facts_from_row(row, call) if row else Facts()

    async def admit(self, call: Decided, record: RecordDraft) -> Refusal | KnownCall | None:
        """One transaction: control row, claims, run, budgets, call, record. None: committed, or a dry run that would be."""
        charges = self._charges(call)
        if isinstance(charges, Refusal):
            return charges
        if call.is_dry_run:
            return await self._would_admit(call, charges)
        try:
            async with self._database.transaction() as connection:
                await self._check_control(connection, call)
                await self._take_claims(connection, call)
                await self._count_in_run(connection, call)
                await connection.execute(
                    self._sql["insert_call"],
                    call.caller.tenant,
                    call.decision_id,
                    call.principal.agent,
                    call.principal.subject,
                    call.run_id,
                    call.workflow_name,
                    call.tool.name,
                    call.fingerprint,
                )
                budgets = [await self._reserve(connection, call, charge) for charge in charges]
                await append_record(connection, self._sql, record, None, budgets=budgets)
        except Rollback as stop:
            if isinstance(stop.found, Refusal | KnownCall):
                return stop.found
            raise
        return None

    async def settle(self, call: Normalized, record: RecordDraft, answer: Mapping[str, Any]) -> None:
        """One transaction: the call's end, its budgets and its outcome record. Safe to repeat."""
        tenant, outcome = call.caller.tenant, call.outcome
        async with self._database.transaction() as connection:
            ended = await connection.fetchval(
                self._sql["end_call"],
                tenant,
                call.decision_id,
                outcome.state.value,
                answer["result"]["status"],
                outcome.reason_code.value,
                orjson.dumps(answer),
            )
            if ended is None:
                return  # an earlier try of this very settlement was committed; its answer was lost
            window = call.tool.declaration.idempotency
            if outcome.state is CallState.SUCCEEDED and isinstance(window, BusinessKey) and call.business_key:
                await connection.execute(
                    self._sql["end_business_claim"], tenant, call.tool.name, call.business_key, call.decision_id, window.window
                )
            if outcome.state is CallState.FAILED:
                await connection.execute(self._sql["count_failure_in_run"], tenant, call.principal.agent, call.run_id)
            budgets = [] if outcome.state is CallState.IN_DOUBT else await self._book(connection, call)
            await append_record(connection, self._sql, record, call.decision_id, budgets=budgets)

    async def refuse(self, call: Proposed, refusal: Refusal, record: RecordDraft, arguments: bytes) -> ApprovalRequest | None:
        """Commit the record of a refused call; opens or finds the approval where a person must agree.

        A call that got as far as policy keeps its transport key bound to its input.
        `arguments` is the redacted argument document that an approver will see.
        """
        sql, approval = self._sql, refusal.approval
        async with self._database.transaction() as connection:
            if isinstance(call, Informed):
                if call.transport_key is not None:
                    await connection.execute(
                        sql["bind_transport_key"],
                        record.tenant,
                        call.principal.agent,
                        call.transport_key,
                        call.fingerprint,
                        call.decision_id,
                        self._ttl,
                    )
                if refusal.effect is Effect.CONFIRM and approval is None:
                    approval = await self._open_approval(connection, call, arguments)
            late = {"approval_id": approval.approval_id} if approval else {}
            await append_record(connection, sql, record, None, **late)
        return approval

    async def note_replay(self, record: RecordDraft, about: UUID) -> None:
        """Commit the record of a call that was answered from the ledger, linked to the decision that it repeats."""
        async with self._database.transaction() as connection:
            await append_record(connection, self._sql, record, about)

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
            if record["approval_id"]:
                found = await connection.fetchrow(sql["get_approval"], tenant, UUID(record["approval_id"]))
                approval = _approval_request(found) if found else None
        return CallNow(
            state=CallState(row["state"]) if row else CallState.OPEN,
            answer=orjson.loads(row["answer"]) if row and row["answer"] else None,
            record=record,
            approval=approval,
        )

    # The steps of an admission, in lock order.

    async def _check_control(self, connection: Connection, call: Decided) -> None:
        control = await connection.fetchrow(self._sql["share_control"], call.caller.tenant)
        if control is None or control["revision"] != call.bundle.revision:
            raise Rollback(Refusal(reason_code=ReasonCode.POLICY_STALE, detail="another revision is in force"))

    async def _take_claims(self, connection: Connection, call: Decided) -> None:
        tenant = call.caller.tenant
        claims: list[tuple[Literal["transport", "business"], str, bytes, float | None]] = []
        if call.business_key is not None:
            claims.append(("business", call.tool.name, call.business_key, None))
        if call.transport_key is not None:
            claims.append(("transport", call.principal.agent, call.transport_key, self._ttl))
        for kind, scope, digest, ttl in claims:
            holder = await connection.fetchval(
                self._sql["take_claim"], tenant, kind, scope, digest, call.fingerprint, call.decision_id, ttl
            )
            if holder == call.decision_id:
                continue
            row = await connection.fetchrow(self._sql["find_claim"], tenant, kind, scope, digest)
            known = known_from_row(kind, row) if row else None
            if known is not None and known.holds(call.fingerprint):
                raise Rollback(known)
            await connection.execute(self._sql["move_claim"], tenant, kind, scope, digest, call.decision_id, call.fingerprint)

    async def _count_in_run(self, connection: Connection, call: Decided) -> None:
        counted = await connection.fetchval(
            self._sql["count_call_in_run"],
            call.caller.tenant,
            call.principal.agent,
            call.run_id,
            call.workflow_name,
            call.principal.subject,
        )
        if counted is None:
            raise Rollback(Refusal(reason_code=ReasonCode.RUN_MISMATCH))

    async def _reserve(self, connection: Connection, call: Decided, charge: Charge) -> dict[str, Any]:
        tenant = call.caller.tenant
        row = None
        if charge.amount <= charge.limit:  # the statement checks the limit only where the row stands already
            row = await connection.fetchrow(
                self._sql["reserve"], tenant, charge.name, charge.scope, charge.period, charge.amount, charge.limit
            )
        if row is None:
            raise Rollback(_exhausted(charge))
        await connection.execute(
            self._sql["insert_reservation"],
            tenant,
            call.decision_id,
            charge.name,
            charge.scope,
            charge.period,
            charge.unit,
            charge.amount,
        )
        return _budget_entry(charge.name, charge.unit, row) | {"held": charge.amount, "limit": charge.limit}

    async def _book(self, connection: Connection, call: Normalized) -> list[dict[str, Any]]:
        tenant = call.caller.tenant
        entries: list[dict[str, Any]] = []
        for held in await connection.fetch(self._sql["held_reservations"], tenant, call.decision_id):
            spent = held["amount"] if _counts_as_spent(call, held["unit"]) else 0
            row = await connection.fetchrow(
                self._sql["book_budget"], tenant, held["name"], held["scope"], held["period"], held["amount"], spent
            )
            if row is None:
                raise LookupError(f"budget row of reservation {held['name']} vanished")
            state = "settled" if spent else "released"
            await connection.execute(self._sql["end_reservation"], tenant, call.decision_id, held["name"], state, spent)
            entries.append(_budget_entry(held["name"], held["unit"], row) | {"settled": spent})
        return entries

    async def _open_approval(self, connection: Connection, call: Informed, arguments: bytes) -> ApprovalRequest:
        confirmation = call.scope.workflow.declaration.confirmation
        if confirmation is None:
            raise LookupError(f"workflow {call.workflow_name} names nobody who could agree")
        tenant = call.caller.tenant
        await connection.execute(self._sql["expire_approval"], tenant, call.effect_hash)
        row = await connection.fetchrow(
            self._sql["open_approval"],
            tenant,
            call.decision_id,  # the decision that first asked gives the approval its id
            call.effect_hash,
            call.decision_id,
            call.principal.agent,
            call.principal.subject,
            call.run_id,
            call.workflow_name,
            call.tool.name,
            call.tool.digest,
            confirmation.rule,
            confirmation.permission,
            f"{call.tool.declaration.title} for {call.principal.subject}",
            arguments,
            confirmation.valid_for,
        )
        if row is None:
            raise LookupError("an approval upsert answered no row")
        return _approval_request(row)

    def _charges(self, call: Decided) -> tuple[Charge, ...] | Refusal:
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

    async def _would_admit(self, call: Decided, charges: tuple[Charge, ...]) -> Refusal | None:
        async with self._database.connection() as connection:
            for charge in charges:
                row = await connection.fetchrow(self._sql["read_budget"], call.caller.tenant, charge.name, charge.scope, charge.period)
                used = row["reserved"] + row["spent"] if row else 0
                if used + charge.amount > charge.limit:
                    return _exhausted(charge)
        return None


def _counts_as_spent(call: Normalized, unit: str) -> bool:
    if unit == CALLS:
        return call.delivered.phase is not Phase.NOT_SENT  # whatever reached the tool counts as a call
    return call.outcome.state is CallState.SUCCEEDED


def _exhausted(charge: Charge) -> Refusal:
    code = ReasonCode.BUDGET_CALLS_EXHAUSTED if charge.unit == CALLS else ReasonCode.BUDGET_COST_EXHAUSTED
    return Refusal(reason_code=code, detail=f"budget {charge.name}")


def _budget_entry(name: str, unit: str, row: Row) -> dict[str, Any]:
    return {"name": name, "unit": unit, "reserved": row["reserved"], "spent": row["spent"]}


def _approval_request(row: Row) -> ApprovalRequest:
    return ApprovalRequest(approval_id=str(row["approval_id"]), expires_at=row["expires_at"], summary=row["summary"])


def _uuid_or_none(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
