"""Reading what the ledger knows about a call, its run and its twins, from one row to values."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import orjson

from gateway.domain.call import ApprovalFact, Authorized, CallCount, Facts, KnownCall, PastCall
from gateway.domain.decision import Refusal
from gateway.domain.outcome import CallState
from gateway.domain.reasons import ReasonCode, Status
from gateway.ledger.database import Row

_STATUS_OF_STATE = {
    CallState.RUNNING: Status.IN_PROGRESS,
    CallState.PENDING_CLIENT: Status.PENDING_CLIENT,
    CallState.IN_DOUBT: Status.OUTCOME_UNKNOWN,
}


def known_from_row(kind: Literal["transport", "business"], row: Row) -> KnownCall:
    """The holder of a claim; a claim whose call was never admitted is open."""
    return KnownCall(
        kind=kind,
        decision_id=row["decision_id"],
        state=CallState(row["state"]) if row["state"] else CallState.OPEN,
        agent=row["agent"] or "",
        subject=row["subject"] or "",
        tool=row["tool"] or "",
        fingerprint=row["fingerprint"],
        told=orjson.loads(row["told"]) if row["told"] else None,
        result=orjson.loads(row["result"]) if row["result"] else None,
        is_expired=row["is_expired"],
    )


def facts_from_row(row: Row, call: Authorized) -> Facts | KnownCall | Refusal:
    """Facts of one snapshot, or the call that holds one of its two identities, or the run's refusal."""
    for kind in ("transport", "business"):
        known = _known(kind, _load(row[kind]))
        if known is not None and known.holds(call.fingerprint):
            return known
    run = _load(row["run"])
    if run and (run["workflow"], run["subject"]) != (call.workflow_name, call.principal.subject):
        return Refusal(reason_code=ReasonCode.RUN_MISMATCH)
    return Facts(
        run_version=run["calls"] if run else 0,
        tool_version=row["version"] or 0,
        input_failures=row["input_failures"],
        run_calls=run["calls"] if run else 0,
        run_failures=run["failures"] if run else 0,
        history=tuple(
            PastCall(tool=past["tool"], status=_status(past), reason_code=past["reason_code"], at=_time(past["at"]))
            for past in _load(row["history"]) or ()
        ),
        same_call=_count(_load(row["same_call"])),
        same_tool=_count(_load(row["same_tool"])),
        approval=_approval(_load(row["approval"])),
    )


def _known(kind: Literal["transport", "business"], found: Mapping[str, Any] | None) -> KnownCall | None:
    if found is None:
        return None
    return KnownCall(
        kind=kind,
        decision_id=UUID(found["decision_id"]),
        state=CallState(found["state"]) if found["state"] else CallState.OPEN,
        agent=found["agent"] or "",
        subject=found["subject"] or "",
        tool=found["tool"] or "",
        fingerprint=bytes.fromhex(found["fingerprint"]),
        told=_load_base64(found["told"]),
        result=_load_base64(found["result"]),
        is_expired=found["is_expired"],
    )


def _load_base64(text: str | None) -> Any:
    return orjson.loads(base64.b64decode(text)) if text else None


def _load(text: str | None) -> Any:
    return orjson.loads(text) if text else None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _status(past: Mapping[str, Any]) -> str:
    return past["status"] or _STATUS_OF_STATE[CallState(past["state"])].value


def _count(found: Mapping[str, Any]) -> CallCount:
    if not found["count"]:
        return CallCount()
    last = {"state": found["last_state"], "status": found["last_status"]}
    return CallCount(count=found["count"], last_at=_time(found["last_at"]), last_status=_status(last))


def _approval(found: Mapping[str, Any] | None) -> ApprovalFact | None:
    if found is None:
        return None
    return ApprovalFact(
        approval_id=found["approval_id"],
        state=found["state"],
        effect_hash=bytes.fromhex(found["effect_hash"]),
        rule=found["rule"],
        summary=found["summary"],
        expires_at=_time(found["expires_at"]),
        is_expired=found["is_expired"],
    )
