"""Approvals inside a batch: grants that admissions use, grants that calls without effect give back, requests that refusals open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.domain.approvals import ApprovalState, state_now
from gateway.domain.call import Decided, Informed
from gateway.domain.decision import ApprovalRequest, Refusal
from gateway.domain.drafts import expiry_draft
from gateway.domain.reasons import ReasonCode
from gateway.ledger.database import Connection, Row, Statements
from gateway.ledger.log import Entry, read_records

_REFUSALS = {
    ApprovalState.CONSUMED: ReasonCode.APPROVAL_CONSUMED,
    ApprovalState.DENIED: ReasonCode.APPROVAL_DENIED,
    ApprovalState.EXPIRED: ReasonCode.APPROVAL_EXPIRED,
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A call that needs a person, and the document that the person is shown (JSON)."""

    call: Informed
    document: bytes


class Grants:
    """The approvals of one batch."""

    def __init__(self, tenant: str, sql: Statements, new_id: Callable[[], UUID]) -> None:
        self._tenant = tenant
        self._sql = sql
        self._new_id = new_id
        self._rows: dict[UUID, Row] = {}
        self._used: dict[UUID, UUID] = {}
        self._open: dict[bytes, ApprovalRequest] = {}
        self.log: list[Entry] = []
        """Records of approvals whose time turned out to be over."""

    async def lock(self, connection: Connection, uses: Sequence[Decided], ended: Sequence[UUID], questions: Sequence[Question]) -> None:
        """Lock the grants of admissions and of calls that ended without effect, and what stands for the questions."""
        wanted = [call.grant for call in uses if call.grant is not None]
        effects = [question.call.effect_hash for question in questions]
        if wanted or ended or effects:
            rows = await connection.fetch(self._sql["lock_approvals"], self._tenant, wanted, list(ended), effects)
            self._rows = {row["approval_id"]: row for row in rows}

    def judge(self, call: Decided) -> Refusal | None:
        """Whether the call may use the grant that it named: of its effect, not used, not over. A refusal burns nothing."""
        if call.grant is None:
            return None
        row = self._rows.get(call.grant)
        if row is None or row["effect_hash"] != call.effect_hash:
            return Refusal(reason_code=ReasonCode.APPROVAL_OUT_OF_SCOPE)
        state = ApprovalState.CONSUMED if call.grant in self._used else _now(row)
        if state is ApprovalState.GRANTED:
            return None
        return Refusal(reason_code=_REFUSALS.get(state, ReasonCode.APPROVAL_OUT_OF_SCOPE))

    def use(self, call: Decided) -> None:
        """The call is admitted: the grant is its own from now on."""
        if call.grant is not None:
            self._used[call.grant] = call.decision_id

    def given_back(self, decision_id: UUID) -> dict[str, Any]:
        """What the record of a call that ended without effect says of the grant that it used."""
        found = [row["approval_id"] for row in self._rows.values() if row["consumed_by"] == decision_id]
        return {"approval_id": str(found[0])} if found else {}

    async def write(self, connection: Connection, ended: Sequence[UUID], questions: Sequence[Question]) -> None:
        """Write what was used and given back, and open what nobody was asked yet."""
        sql, tenant = self._sql, self._tenant
        if self._used:
            await connection.execute(sql["consume_approvals"], tenant, list(self._used), list(self._used.values()))
        restored = [row["approval_id"] for row in self._rows.values() if row["consumed_by"] in ended]
        if restored:
            await connection.execute(sql["restore_approvals"], tenant, restored)
        if questions:
            await self._ask(connection, questions)

    def request_of(self, question: Question) -> ApprovalRequest:
        """The approval that a question opened or met."""
        return self._open[question.call.effect_hash]

    async def _ask(self, connection: Connection, questions: Sequence[Question]) -> None:
        sql, tenant = self._sql, self._tenant
        standing = [row for row in self._rows.values() if row["state"] in (ApprovalState.PENDING, ApprovalState.GRANTED)]
        over = [row for row in standing if row["is_expired"]]
        if over:
            await connection.execute(sql["expire_approvals"], tenant, [row["approval_id"] for row in over])
            self.log += await expiries(connection, sql, tenant, over, self._new_id)
        self._meet(row for row in standing if not row["is_expired"] and row["approval_id"] not in self._used)
        new = {question.call.effect_hash: question for question in reversed(questions) if question.call.effect_hash not in self._open}
        if new:
            rows = [_columns_of(question) for question in new.values()]
            await connection.execute(sql["open_approvals"], tenant, *(list(column) for column in zip(*rows, strict=True)))
            # Where another gateway asked at the same moment, its question stands for ours.
            self._meet(await connection.fetch(sql["pending_approvals"], tenant, list(new)))

    def _meet(self, rows: Any) -> None:
        for row in rows:
            self._open[row["effect_hash"]] = approval_from_row(row)


async def expiries(connection: Connection, sql: Statements, tenant: str, rows: Sequence[Row], new_id: Callable[[], UUID]) -> list[Entry]:
    """The records of approvals that have just expired."""
    asked = await read_records(connection, sql, tenant, [row["decision_id"] for row in rows])
    return [Entry(expiry_draft(asked[row["decision_id"]], record_id=new_id(), was=row["state"]), row["decision_id"], {}) for row in rows]


def approval_from_row(row: Row) -> ApprovalRequest:
    """What an answer says of an approval."""
    return ApprovalRequest(approval_id=str(row["approval_id"]), expires_at=row["expires_at"], summary=row["summary"])


def _now(row: Row) -> ApprovalState:
    return state_now(row["state"], is_expired=row["is_expired"])


def _columns_of(question: Question) -> tuple[Any, ...]:
    call = question.call
    confirmation = call.scope.workflow.declaration.confirmation
    if confirmation is None:
        raise LookupError(f"workflow {call.workflow_name} names nobody who could agree")
    return (
        call.decision_id,  # the decision that first asked gives the approval its id
        call.effect_hash,
        call.principal.agent,
        call.principal.subject,
        call.run_id,
        call.workflow_name,
        call.tool.name,
        call.tool.digest,
        call.bundle.revision,
        confirmation.rule,
        confirmation.permission,
        confirmation.valid_for,
        f"{call.tool.declaration.title} for {call.principal.subject}",
        question.document,
    )
