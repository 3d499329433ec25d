"""Building the wire form of answers. Plain dicts: absent fields are absent; `gateway.domain.result` is their schema."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.domain.approvals import ApprovalFact, ApprovalState
from gateway.domain.call import CallNow, Decided, KnownCall, Proposed
from gateway.domain.catalogue import Bundle
from gateway.domain.decision import RETRY_AFTER_MS, ApprovalRequest, Dissent, Refusal
from gateway.domain.outcome import CallState, Outcome
from gateway.domain.reasons import Effect, ReasonCode, Status

Answer = dict[str, Any]

_GRANTED = "A person agreed to this exact call. Repeat it now with `approval_id`."
_HANDED_OUT = "Allowed. The client performs it and reports what came of it. Do not repeat this call."


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


def plain_result(code: ReasonCode) -> dict[str, Any]:
    """The result of a standard outcome code, without data."""
    status = code.status or Status.OUTCOME_UNKNOWN
    result: dict[str, Any] = {
        "status": status.value,
        "reason_code": code.value,
        "message": code.message,
        "retry_same_input": status.retry_same_input,
    }
    if status is Status.TEMPORARY_ERROR:
        result["retry_after_ms"] = RETRY_AFTER_MS
    if status is Status.OK:
        result |= {"data": None, "data_omitted": "invalid"}
    return result


def refusal_details(refusal: Refusal, approval: ApprovalRequest | None) -> dict[str, Any]:
    """The fields that a refusal adds to its result, beyond status, code and sentence."""
    details: dict[str, Any] = {}
    if refusal.errors:
        details["errors"] = [{"path": error.path, "message": error.message} for error in refusal.errors]
    if approval is not None:
        details |= approval_details(approval)
    if refusal.dissent is not None:
        details |= dissent_details(refusal.dissent)
    if refusal.decision is not None and refusal.decision.until is not None:
        details["until"] = rfc3339(refusal.decision.until)
    return details


def approval_details(approval: ApprovalRequest) -> dict[str, Any]:
    """What an answer says of an approval."""
    return {"approval_id": approval.approval_id, "expires_at": rfc3339(approval.expires_at), "summary": approval.summary}


def dissent_details(dissent: Dissent) -> dict[str, Any]:
    """What an answer says of a person's no."""
    suggested = {} if dissent.suggested_args is None else {"suggested_args": dict(dissent.suggested_args)}
    return {"approval_id": dissent.approval_id, "comment": dissent.comment} | suggested


def approval_result(bundle: Bundle, code: str, approval: ApprovalFact) -> dict[str, Any]:
    """What a call that was refused with `code`, because a person must agree, is told now."""
    match approval.now:
        case ApprovalState.PENDING:
            return result_of(bundle, approval.waiting_code if approval.agreed else code, **approval_details(approval.request))
        case ApprovalState.GRANTED:
            status = Status.CONFIRMATION_REQUIRED
            said = {"status": status.value, "reason_code": ReasonCode.APPROVAL_GRANTED.value, "message": _GRANTED}
            return said | {"retry_same_input": status.retry_same_input} | approval_details(approval.request)
        case ApprovalState.DENIED:
            return result_of(bundle, ReasonCode.APPROVAL_DENIED, **dissent_details(approval.dissent))
        case ApprovalState.CONSUMED:
            return result_of(bundle, ReasonCode.APPROVAL_CONSUMED)
        case ApprovalState.EXPIRED:
            return result_of(bundle, ReasonCode.APPROVAL_EXPIRED)


def handed_out(told: Mapping[str, Any], *, execution_id: str, expires_at: datetime, kind: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an allowed call that the agent's client performs; its code is that of the decision."""
    return {
        "status": Status.PENDING_CLIENT.value,
        "reason_code": told["decision"]["reason_code"],
        "message": _HANDED_OUT,
        "retry_same_input": Status.PENDING_CLIENT.retry_same_input,
        "execution_id": execution_id,
        "expires_at": rfc3339(expires_at),
        "kind": kind,
        "args": dict(args),
    }


def refused(call: Proposed, refusal: Refusal, stage: str, approval: ApprovalRequest | None, *, is_recorded: bool = True) -> Answer:
    """The answer on a call that `stage` refused."""
    details = refusal_details(refusal, approval)
    decision = call.decision if isinstance(call, Decided) else refusal.decision
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
            "policy": decision.policy if decision else None,
            "revision": call.bundle.revision,
        },
        "result": result_of(call.bundle, refusal.reason_code, **details),
        "replayed": False,
    }


def outcome_result(bundle: Bundle, outcome: Outcome) -> dict[str, Any]:
    """The result that an outcome is told as."""
    more: dict[str, Any] = {}
    if outcome.reason_code.status is Status.OK:
        more["data"] = outcome.data
        if outcome.data_omitted:
            more["data_omitted"] = outcome.data_omitted
    if outcome.reason_code.status is Status.TEMPORARY_ERROR and outcome.retry_after_ms is not None:
        more["retry_after_ms"] = max(outcome.retry_after_ms, RETRY_AFTER_MS)
    return result_of(bundle, outcome.reason_code, **more)


def told_of(call: Decided) -> dict[str, Any]:
    """Call and decision of the answer on an admitted call: fixed at admission, whatever comes of it."""
    return {
        "call": call_name(call),
        "decision": {
            "effect": Effect.ALLOW.value,
            "reason_code": call.decision.reason_code,
            "stage": "decide",
            "policy": call.decision.policy,
            "revision": call.bundle.revision,
        },
    }


def allowed(call: Decided, result: Mapping[str, Any]) -> Answer:
    """The answer on an admitted call."""
    return {"decision_id": str(call.decision_id)} | told_of(call) | {"result": dict(result), "replayed": False}


def unsettled(call: Decided) -> Answer:
    """The answer on an admitted call whose outcome could not be booked in time."""
    return allowed(call, result_of(call.bundle, ReasonCode.OUTCOME_UNKNOWN))


def repeated(call: Proposed, known: KnownCall, *, is_permitted: bool) -> Answer:
    """The answer from the ledger on a call that it knows: the first answer, under this call's own model id."""
    result = _for_eyes(known.result or unended_result(call.bundle, known.state), is_permitted=is_permitted)
    told = {"decision_id": str(known.decision_id)} | dict(known.told or {})
    return told | {"call": call_name(call), "result": result, "replayed": True}


def as_it_stands(bundle: Bundle, now: CallNow, *, is_permitted: bool) -> Answer:
    """The answer on a call that was decided earlier: what ended it, what refused it, or that it still runs."""
    record = now.record
    answer: Answer = {
        "decision_id": record["decision_id"],
        "call": _call_of_record(record),
        "decision": {field: record[field] for field in ("effect", "reason_code", "stage", "policy", "revision")},
    }
    if now.told is not None:
        answer |= now.told
        result: Mapping[str, Any] = now.result or unended_result(bundle, now.state)
    else:
        code = record["reason_code"]
        if not bundle.knows(code) or bundle.status(code) != record["status"]:
            code = ReasonCode.POLICY_DENIED  # a code of a bundle that is no longer in force
        details: dict[str, Any] = dict(record["outcome"]["told"]) if record["outcome"] else {}
        if now.approval is not None and bundle.status(code) is Status.CONFIRMATION_REQUIRED:
            result = approval_result(bundle, code, now.approval)
        elif now.approval is not None and code == ReasonCode.APPROVAL_DENIED:
            result = result_of(bundle, code, **details | dissent_details(now.approval.dissent))
        else:
            result = result_of(bundle, code, **details)
    return answer | {"result": _for_eyes(result, is_permitted=is_permitted), "replayed": False}


def _for_eyes(result: Mapping[str, Any], *, is_permitted: bool) -> dict[str, Any]:
    """A result without its data for who may not see it (any more)."""
    hidden = {"data": None, "data_omitted": "not_permitted"} if not is_permitted and "data" in result else {}
    return dict(result) | hidden


def unended_result(bundle: Bundle, state: CallState) -> dict[str, Any]:
    """The result of an admitted call that has not ended: it runs, or nobody knows."""
    return result_of(bundle, ReasonCode.OUTCOME_UNKNOWN if state is CallState.IN_DOUBT else ReasonCode.IN_PROGRESS)


def call_name(call: Proposed) -> dict[str, Any]:
    """Which call an answer belongs to; no id where the model gave none."""
    name: dict[str, Any] = {} if call.call.id is None else {"id": call.call.id}
    return name | {"name": call.call.name}


def _call_of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    name: dict[str, Any] = {} if record["call_id"] is None else {"id": record["call_id"]}
    return name | {"name": record["tool"]}
