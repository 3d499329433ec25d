"""Opening approvals: a request to a person about one exact call."""

from gateway.domain.call import Informed
from gateway.domain.decision import ApprovalRequest
from gateway.ledger.database import Connection, Row, Statements


async def open_approval(connection: Connection, sql: Statements, call: Informed, arguments: bytes) -> ApprovalRequest:
    """The pending approval of exactly this call, opened where there is none."""
    confirmation = call.scope.workflow.declaration.confirmation
    if confirmation is None:
        raise LookupError(f"workflow {call.workflow_name} names nobody who could agree")
    tenant = call.caller.tenant
    await connection.execute(sql["expire_approval"], tenant, call.effect_hash)
    row = await connection.fetchrow(
        sql["open_approval"],
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
    return approval_from_row(row)


def approval_from_row(row: Row) -> ApprovalRequest:
    """What an answer says of an approval."""
    return ApprovalRequest(approval_id=str(row["approval_id"]), expires_at=row["expires_at"], summary=row["summary"])
