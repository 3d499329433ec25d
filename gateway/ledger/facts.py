"""Reading what the ledger knows about a call, its run and its twins, from one row to values."""

from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

import orjson

from gateway.domain.approvals import ApprovalFact
from gateway.domain.call import Authorized, CallCount, Facts, KnownCall, PastCall
from gateway.domain.decision import Refusal
from gateway.domain.outcome import CallState
from gateway.domain.reasons import ReasonCode, Status
from gateway.ledger.database import Row

_STATUS_OF_STATE = {
    CallState.RUNNING.value: Status.IN_PROGRESS.value,
    CallState.PENDING_CLIENT.value: Status.PENDING_CLIENT.value,
    CallState.IN_DOUBT.value: Status.OUTCOME_UNKNOWN.value,
}


class FactsQuestion(NamedTuple):
    """What `read_facts` needs to know of a call, in the order of the type `facts_question`, without its place."""

    agent: str
    run_id: str
    subject: str
    tool: str
    fingerprint: bytes
    approval_id: UUID | None
    business_key: bytes | None
    transport_key: bytes | None


def question_about(call: Authorized, business_key: bytes | None) -> FactsQuestion:
    """The question about one call."""
    return FactsQuestion(
        call.principal.agent,
        call.run_id,
        call.principal.subject,
        call.tool.name,
        call.fingerprint,
        _uuid_or_none(call.call.approval_id),
        business_key,
        call.transport_key,
    )


def known_from_row(kind: Literal["transport", "business"], row: Row) -> KnownCall:
    """The holder of a claim; a claim whose call was never admitted is open."""
    return _known(kind, row, "")


def facts_from_row(row: Row, call: Authorized) -> Facts | KnownCall | Refusal:
    """Facts of one snapshot, or the call that holds one of its two identities, or the run's refusal."""
    for kind in ("transport", "business"):
        if row[kind + "_decision_id"] is not None:
            known = _known(kind, row, kind + "_")
            if known.holds(call.fingerprint):
                return known
    run_calls = row["run_calls"] or 0
    if row["run_is_cancelled"]:
        return Refusal(reason_code=ReasonCode.RUN_CANCELLED)
    if row["run_workflow"] is not None and (row["run_workflow"], row["run_subject"]) != (call.workflow_name, call.principal.subject):
        return Refusal(reason_code=ReasonCode.RUN_MISMATCH)
    return Facts(
        run_version=run_calls,
        tool_version=row["tool_version"] or 0,
        input_failures=row["input_failures"],
        run_calls=run_calls,
        run_failures=row["run_failures"] or 0,
        history=_history(row) if row["tools"] else (),
        same_call=_count(row["input_count"], row["input_last_at"], row["input_last_state"], row["input_last_status"]),
        same_tool=_count(row["tool_count"], row["tool_last_at"], row["tool_last_state"], row["tool_last_status"]),
        approval=approval_fact(_approval_of(row)) if row["approval_id"] is not None else None,
    )


def _known(kind: Literal["transport", "business"], row: Row, prefix: str) -> KnownCall:
    state, told, result = row[prefix + "state"], row[prefix + "told"], row[prefix + "result"]
    return KnownCall(
        kind=kind,
        decision_id=row[prefix + "decision_id"],
        state=CallState(state) if state else CallState.OPEN,
        agent=row[prefix + "agent"] or "",
        subject=row[prefix + "subject"] or "",
        tool=row[prefix + "tool"] or "",
        fingerprint=row[prefix + "fingerprint"],
        told=orjson.loads(told) if told else None,
        result=orjson.loads(result) if result else None,
        is_expired=row[prefix + "is_expired"],
    )


def _history(row: Row) -> tuple[PastCall, ...]:
    newest_first = zip(row["tools"], row["states"], row["statuses"], row["reason_codes"], row["times"], strict=True)
    return tuple(PastCall(tool, _status(state, status), code, at) for tool, state, status, code, at in newest_first)[::-1]


def _status(state: str, status: str | None) -> str:
    return status or _STATUS_OF_STATE[state]


def _count(count: int | None, last_at: datetime | None, state: str | None, status: str | None) -> CallCount:
    if not count or state is None:
        return CallCount()
    return CallCount(count=max(count, 1), last_at=last_at, last_status=_status(state, status))


def _approval_of(row: Row) -> Row:
    return {**row, "state": row["approval_state"], "is_expired": row["approval_is_expired"]}


def approval_fact(row: Row) -> ApprovalFact:
    """An approval as its agent's calls meet it."""
    return ApprovalFact(
        approval_id=str(row["approval_id"]),
        state=row["state"],
        effect_hash=row["effect_hash"],
        rule=row["rule"],
        summary=row["summary"],
        expires_at=row["expires_at"],
        is_expired=row["is_expired"],
        agreed=row["agreed"],
        comment=row["comment"],
        suggested_args=orjson.loads(row["suggested_args"]) if row["suggested_args"] else None,
    )


def _uuid_or_none(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
