"""Building the wire form of answers. Plain dicts: absent fields are absent; `gateway.domain.result` is their schema."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.domain.call import CallNow, Decided, KnownCall, Normalized, Proposed
from gateway.domain.catalogue import Bundle
from gateway.domain.decision import RETRY_AFTER_MS, ApprovalRequest, Refusal
from gateway.domain.outcome import CallState, Outcome
from gateway.domain.reasons import Effect, ReasonCode, Status

Answer = dict[str, Any]


def rfc3339(at: datetime) -> str:
    """An aware time as RFC 3339 in UTC with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def result_of(bundle: Bundle, code: str, **more: Any) -> dict[str, Any]:
    """A result with the status and the fixed sentence of `code`, and the fields of its status."""
    status = bundle.status(code)
    if status is None:
        raise ValueError(f"{code} allows; it is no result")
    result: dict[str, Any] = {
        "status": status.value,
        "reason_code": str(code),
        "message": bundle.message(code),
        "retry_same_input": status.retry_same_input,
    }
    if status in (Status.TEMPORARY_ERROR, Status.IN_PROGRESS):
        result["retry_after_ms"] = more.pop("retry_after_ms", RETRY_AFTER_MS)
    return result | more


def refusal_details(refusal: Refusal, approval: ApprovalRequest | None) -> dict[str, Any]:
    """The fields that a refusal adds to its result, beyond status, code and sentence."""
    details: dict[str, Any] = {}
    if refusal.errors:
        details["errors"] = [{"path": error.path, "message": error.message} for error in refusal.errors]
    if approval is not None:
        details |= approval_details(approval)
    if refusal.decision is not None and refusal.decision.until is not None:
        details["until"] = rfc3339(refusal.decision.until)
    return details


def approval_details(approval: ApprovalRequest) -> dict[str, Any]:
    """What an answer says of an approval."""
    return {"approval_id": approval.approval_id, "expires_at": rfc3339(approval.expires_at), "summary": approval.summary}


def refused(call: Proposed, refusal: Refusal, stage: str, approval: ApprovalRequest | None, *, is_recorded: bool = True) -> Answer:
    """The answer on a call that `stage` refused."""
    details = refusal_details(refusal, approval)
    if call.bundle.status(refusal.reason_code) is Status.INVALID_ARGUMENTS:
        details.setdefault("errors", [])
    if call.bundle.status(refusal.reason_code) is Status.TEMPORARY_ERROR:
        details["retry_after_ms"] = refusal.retry_after_ms
    return {
        "decision_id": str(call.decision_id) if is_recorded else None,
        "call": call_name(call),
        "decision": {
            "effect": refusal.effect.value,
            "reason_code": str(refusal.reason_code),
            "stage": stage,
            "policy": refusal.decision.policy if refusal.decision else None,
            "revision": call.bundle.revision,
        },
        "result": result_of(call.bundle, refusal.reason_code, **details),
        "replayed": False,
    }


def ended(call: Normalized) -> Answer:
    """The answer on a call that was executed."""
    return _allowed(call, outcome_result(call.bundle, call.outcome))


def outcome_result(bundle: Bundle, outcome: Outcome) -> dict[str, Any]:
    """The result that an outcome is told as."""
    more: dict[str, Any] = {}
    if outcome.reason_code.status is Status.OK:
        more["data"] = outcome.data
        if outcome.data_omitted:
            more["data_omitted"] = outcome.data_omitted
    return result_of(bundle, outcome.reason_code, **more)


def repeated(call: Proposed, known: KnownCall, *, is_permitted: bool) -> Answer:
    """The answer from the ledger on a call that it knows: the first answer, under this call's own model id."""
    if known.answer is None:
        code = ReasonCode.OUTCOME_UNKNOWN if known.state is CallState.IN_DOUBT else ReasonCode.IN_PROGRESS
        return {
            "decision_id": str(known.decision_id),
            "call": call_name(call),
            "decision": {
                "effect": Effect.ALLOW.value,
                "reason_code": ReasonCode.POLICY_ALLOWED.value,
                "stage": "recall",
                "policy": None,
                "revision": None,
            },
            "result": result_of(call.bundle, code),
            "replayed": True,
        }
    answer: Answer = dict(known.answer) | {"call": call_name(call), "replayed": True}
    if not is_permitted and "data" in answer["result"]:
        answer["result"] = dict(answer["result"]) | {"data": None, "data_omitted": "not_permitted"}
    return answer


def as_it_stands(bundle: Bundle, now: CallNow) -> Answer:
    """The answer on a call that was decided earlier: what ended it, what refused it, or that it still runs."""
    if now.answer is not None:
        return dict(now.answer)
    record = now.record
    details: dict[str, Any] = {}
    if now.state is CallState.OPEN:
        code = record["reason_code"]
        if not bundle.knows(code):
            code = ReasonCode.POLICY_DENIED  # a code of a bundle that is no longer in force
        details |= record["outcome"]["told"] if record["outcome"] else {}
    else:
        code = ReasonCode.OUTCOME_UNKNOWN if now.state is CallState.IN_DOUBT else ReasonCode.IN_PROGRESS
    if now.approval is not None:
        details |= approval_details(now.approval)
    return {
        "decision_id": record["decision_id"],
        "call": _call_of_record(record),
        "decision": {field: record[field] for field in ("effect", "reason_code", "stage", "policy", "revision")},
        "result": result_of(bundle, code, **details),
        "replayed": False,
    }


def call_name(call: Proposed) -> dict[str, Any]:
    """Which call an answer belongs to; no id where the model gave none."""
    name: dict[str, Any] = {} if call.call.id is None else {"id": call.call.id}
    return name | {"name": call.call.name}


def _call_of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    name: dict[str, Any] = {} if record["call_id"] is None else {"id": record["call_id"]}
    return name | {"name": record["tool"]}


def unsettled(call: Decided) -> Answer:
    """The answer on an admitted call whose outcome could not be booked in time."""
    return _allowed(call, result_of(call.bundle, ReasonCode.OUTCOME_UNKNOWN))


def _allowed(call: Decided, result: dict[str, Any]) -> Answer:
    return {
        "decision_id": str(call.decision_id),
        "call": call_name(call),
        "decision": {
            "effect": Effect.ALLOW.value,
            "reason_code": call.decision.reason_code,
            "stage": "decide",
            "policy": call.decision.policy,
            "revision": call.bundle.revision,
        },
        "result": result,
        "replayed": False,
    }
