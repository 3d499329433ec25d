"""Writing down what happened to a call: the drafts of its records, with everything sensitive redacted first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from gateway.domain.answers import refusal_details, result_of
from gateway.domain.call import Decided, Informed, KnownCall, Normalized, Proposed, Resolved, Validated
from gateway.domain.canonical import canonical_json
from gateway.domain.catalogue import Tool
from gateway.domain.decision import Decision, RecordLevel, RedactResult, Refusal
from gateway.domain.identity import transport_key
from gateway.domain.in_force import RestrictionKind
from gateway.domain.json_values import is_object
from gateway.domain.keys import KeyGrant
from gateway.domain.outcome import CallState, Outcome, Phase
from gateway.domain.reasons import Effect, ReasonCode, Status
from gateway.domain.record import Payload, RecordDraft, keyed_digest
from gateway.domain.redaction import differences, redact

MAX_TEXT = 128
MAX_KEYS = 64
_KEPT = (
    "agent", "subject", "run_id", "round", "call_id", "workflow", "tool", "tool_digest", "risk", "argument_keys",
    "arguments_digest", "revision", "key_digest", "trace_id",
)  # fmt: skip


def decision_draft(
    call: Proposed,
    *,
    effect: Effect,
    reason_code: str,
    stage: str,
    refusal: Refusal | None,
    engine: str,
    identity: Mapping[str, Any] | None = None,
) -> RecordDraft:
    """The record of a decision on `call`, whichever step it reached: the same fields for allow and deny.

    `identity`: what `identity_of` says of this step of the call, where somebody has asked already.
    """
    decision = call.decision if isinstance(call, Decided) else refusal.decision if refusal else None
    status = call.bundle.status(reason_code)
    outcome: dict[str, Any] | None = None
    if refusal is not None:
        told = refusal_details(replace(refusal, dissent=None), None)  # a person's words stand in the approval's record
        if status is Status.INVALID_ARGUMENTS:
            told.setdefault("errors", [])
        outcome = {"told": told, "detail": refusal.detail}
    approval_id = _approval_of(call, refusal)
    facts = dict(identity or identity_of(call)) | {
        "effect": effect.value,
        "reason_code": str(reason_code),
        "stage": stage,
        "revision": call.bundle.revision,
        "stages": call.trail.document(),
        "status": status.value if status else None,
        "outcome": outcome,
        "approval_id": approval_id,
        "links": [_link("approval", UUID(approval_id))] if approval_id else [],
        "engine": engine if decision is not None or stage == "decide" else None,
    }
    if decision is not None:
        facts |= {
            "policy": decision.policy,
            "rules": [rule.model_dump() for rule in decision.rules],
            "obligations": [obligation.model_dump() for obligation in decision.obligations],
        }
    return RecordDraft(
        decision_id=call.decision_id,
        kind="decision",
        tenant=call.caller.tenant,
        facts=facts,
        payloads=_argument_payloads(call, decision, call.policy_input if isinstance(call, Decided) else refusal and refusal.policy_input),
    )


def outcome_draft(call: Normalized, record_id: UUID, status: str) -> RecordDraft:
    """The record of what came of an admitted call, linked to its decision."""
    outcome, delivery = call.outcome, call.delivered
    facts = dict(call.identity or identity_of(call)) | {
        "effect": Effect.ALLOW.value,
        "reason_code": outcome.reason_code.value,
        "stage": "settle",
        "revision": call.bundle.revision,
        "stages": call.trail.document(),
        "status": status,
        "links": [_link("decision", call.decision_id)],
        "outcome": {
            "state": outcome.state.value,
            "phase": delivery.phase.value,
            "attempts": delivery.attempts,
            "duration_ms": round(delivery.duration_ms, 3),
            "tool_status": delivery.status,
            "problem": delivery.problem,
            "data_omitted": outcome.data_omitted,
        },
    }
    payloads: tuple[Payload, ...] = ()
    if level_of(call, call.decision) == "full" and outcome.data is not None:
        result = redact({"result": outcome.data}, call.tool.declaration.record.redact)
        payloads = (Payload(kind="result", body=result),)
    return RecordDraft(decision_id=record_id, kind="outcome", tenant=call.caller.tenant, facts=facts, payloads=payloads)


def not_sent_draft(call: Decided, record_id: UUID) -> tuple[dict[str, Any], RecordDraft]:
    """The result and the record of a call whose admission may have been committed unseen, and that was never sent."""
    result = result_of(call.bundle, ReasonCode.NO_EFFECT_PROVEN)
    outcome = {"state": CallState.OPEN.value, "phase": Phase.NOT_SENT.value, "attempts": 0, "problem": "not_sent"}
    facts = identity_of(call) | {
        "effect": Effect.ALLOW.value,
        "reason_code": result["reason_code"],
        "stage": "admit",
        "revision": call.bundle.revision,
        "stages": call.trail.document(),
        "status": result["status"],
        "links": [_link("decision", call.decision_id)],
        "outcome": outcome,
    }
    return result, RecordDraft(decision_id=record_id, kind="outcome", tenant=call.caller.tenant, facts=facts)


def later_draft(
    record: Mapping[str, Any], *, record_id: UUID, kind: str, reason_code: str, status: str, outcome: Mapping[str, Any]
) -> RecordDraft:
    """The record of what was found out later about an admitted call, by a reaper, a resolver or a person."""
    facts = {name: record[name] for name in _KEPT} | {
        "effect": Effect.ALLOW.value,
        "reason_code": reason_code,
        "stage": "settle",
        "status": status,
        "links": [_link("decision", UUID(record["decision_id"]))],
        "outcome": dict(outcome),
    }
    return RecordDraft(decision_id=record_id, kind=kind, tenant=record["tenant"], facts=facts)


def report_draft(record: Mapping[str, Any], *, record_id: UUID, outcome: Outcome, status: str, tool: Tool) -> RecordDraft:
    """The record of what a client says of the call that it was handed; `record` is that of the call's decision."""
    said = {
        "state": outcome.state.value,
        "phase": outcome.delivery.phase.value,
        "attempts": 1,
        "method": "client",
        "data_omitted": outcome.data_omitted,
    }
    draft = later_draft(record, record_id=record_id, kind="outcome", reason_code=outcome.reason_code.value, status=status, outcome=said)
    levels = [duty["level"] for duty in record["obligations"] if duty["type"] == "record_level"]
    level = levels[-1] if levels else tool.declaration.record.level
    if level != "full" or outcome.data is None:
        return draft
    return replace(draft, payloads=(Payload(kind="result", body=redact({"result": outcome.data}, tool.declaration.record.redact)),))


def replay_draft(call: Proposed, known: KnownCall, record_id: UUID, status: str, reason_code: str) -> RecordDraft:
    """The record of a call that was answered from the ledger, naming the decision that it repeats."""
    facts = identity_of(call) | {
        "effect": Effect.ALLOW.value,
        "reason_code": reason_code,
        "stage": call.trail.passages[-1].name if call.trail.passages else "recall",
        "revision": call.bundle.revision,
        "stages": call.trail.document(),
        "status": status,
        "links": [_link("decision", known.decision_id)],
    }
    return RecordDraft(decision_id=record_id, kind="replay", tenant=call.caller.tenant, facts=facts)


def activation_draft(record_id: UUID, tenant: str, revision: str, by: str, replaced: str | None) -> RecordDraft:
    """The record of a revision that is put in force."""
    facts = {"revision": revision, "outcome": {"by": by, "replaced": replaced}}
    return RecordDraft(decision_id=record_id, kind="activation", tenant=tenant, facts=facts)


def erasure_draft(record_id: UUID, tenant: str, subject: str, *, by: str, reason: str, keys: Sequence[str]) -> RecordDraft:
    """The record of a subject's data keys that were destroyed, by their ids: what they sealed can be missing or unreadable."""
    outcome = {"action": "erased_subject", "by": by, "reason": reason, "keys": list(keys)}
    return RecordDraft(decision_id=record_id, kind="redaction", tenant=tenant, facts={"subject": subject, "outcome": outcome})


def control_draft(
    record_id: UUID, tenant: str, kind: RestrictionKind, name: str, *, is_restricted: bool, by: str, reason: str
) -> RecordDraft:
    """The record of an agent, a tool or a tenant that is taken out of service, or put back."""
    facts: dict[str, Any] = {"outcome": {"restricted": kind, "name": name, "is_restricted": is_restricted, "by": by, "reason": reason}}
    if kind != "tenant":
        facts[kind] = name
    return RecordDraft(decision_id=record_id, kind="control", tenant=tenant, facts=facts)


def cancellation_draft(record_id: UUID, tenant: str, agent: str, run_id: str) -> RecordDraft:
    """The record of a run that its agent cancelled: no call of it is admitted afterwards."""
    facts = {"agent": agent, "run_id": run_id, "reason_code": ReasonCode.RUN_CANCELLED.value, "outcome": {"by": agent}}
    return RecordDraft(decision_id=record_id, kind="cancellation", tenant=tenant, facts=facts)


def export_draft(
    record_id: UUID, tenant: str, *, by: str, what: Mapping[str, str | None], from_position: int, to_position: int
) -> RecordDraft:
    """The record of an export that is about to begin: who took which records, of positions [from_position, to_position)."""
    outcome = {"by": by, "from_position": from_position, "to_position": to_position, "query": what["q"]}
    outcome |= {name: value for name, value in what.items() if name != "q"}
    return RecordDraft(decision_id=record_id, kind="export", tenant=tenant, facts={"outcome": outcome})


def reveal_draft(record_id: UUID, record: Mapping[str, Any], *, by: str, reason: str) -> RecordDraft:
    """The record of somebody who is about to see the payloads of `record`; it can be found like that one."""
    facts = {name: record[name] for name in _KEPT} | {
        "links": [_link("decision", UUID(record["decision_id"]))],
        "outcome": {"by": by, "reason": reason},
    }
    return RecordDraft(decision_id=record_id, kind="reveal", tenant=record["tenant"], facts=facts)


def key_draft(record_id: UUID, grant: KeyGrant, key_id: UUID, *, action: str, by: str, before: UUID | None) -> RecordDraft:
    """The record of a key that is made, rotated or revoked; never of the key itself."""
    about: dict[str, Any] = {"key_id": str(key_id), "action": action, "by": by, "roles": sorted(grant.roles), "person": grant.person}
    about |= {"label": grant.label, "rotates": str(before) if before else None}
    return RecordDraft(decision_id=record_id, kind="key", tenant=grant.tenant, facts={"agent": grant.agent, "outcome": about})


def redacted_arguments(call: Proposed) -> dict[str, Any]:
    """The arguments as people may see them."""
    if not isinstance(call, Validated):
        return {}
    return redact({"args": call.args}, call.tool.declaration.record.redact)["args"]


def approval_document(call: Informed, reason_code: str, policy: str | None) -> dict[str, Any]:
    """What a person is shown of a call that they are to agree to: exactly what would run, redacted values as keyed digests.

    ``{title, risk, arguments, redacted, context, cost, reason_code, policy}``; `redacted` are JSON pointers into the
    arguments, `cost` is in micro-units.
    """
    declared = call.tool.declaration

    def digest(value: Any) -> str:
        return keyed_digest(call.digest_key, canonical_json(value))

    shown = redact({"args": call.args}, declared.record.redact, digest)["args"]
    return {
        "title": declared.title,
        "risk": declared.risk.value,
        "arguments": shown,
        "redacted": differences(call.args, shown),
        "context": dict(call.context),
        "cost": dict(call.costs),
        "reason_code": reason_code,
        "policy": policy,
    }


def approval_draft(record: Mapping[str, Any], *, record_id: UUID, reason_code: ReasonCode, outcome: Mapping[str, Any]) -> RecordDraft:
    """The record of what a person, or time, made of an approval; `record` is that of the decision that first asked."""
    facts = {name: record[name] for name in _KEPT} | {
        "reason_code": reason_code.value,
        "stage": "approval",
        "approval_id": record["decision_id"],
        "links": [_link("decision", UUID(record["decision_id"]))],
        "outcome": dict(outcome),
    }
    return RecordDraft(decision_id=record_id, kind="approval", tenant=record["tenant"], facts=facts)


def expiry_draft(record: Mapping[str, Any], *, record_id: UUID, was: str) -> RecordDraft:
    """The record of an approval that nobody answered (it `was` pending) or used (it `was` granted) in time."""
    return approval_draft(record, record_id=record_id, reason_code=ReasonCode.APPROVAL_EXPIRED, outcome={"state": "expired", "was": was})


def level_of(call: Resolved, decision: Decision | None) -> str:
    """The recording level: the tool's, unless policy obliged to another."""
    levels = [duty.level for duty in decision.obligations if isinstance(duty, RecordLevel)] if decision else []
    return levels[-1] if levels else call.tool.declaration.record.level


def result_redactions(decision: Decision) -> list[str]:
    """JSON pointers of the result that policy obliged to blank."""
    return [path for duty in decision.obligations if isinstance(duty, RedactResult) for path in duty.paths]


def _approval_of(call: Proposed, refusal: Refusal | None) -> str | None:
    """The approval that a decision used, met or was refused for."""
    if isinstance(call, Decided) and call.grant is not None:
        return str(call.grant)
    met = refusal and (refusal.approval or refusal.dissent)
    return met.approval_id if met else None


def identity_of(call: Proposed) -> dict[str, Any]:
    """Who calls what: the fields that all records of a call share."""
    facts: dict[str, Any] = {
        "agent": call.caller.name,
        "subject": call.on_behalf_of and _clip(call.on_behalf_of),
        "run_id": call.run_id,
        "round": {"id": str(call.round[0]), "position": call.round[1]} if call.round else None,
        "call_id": call.call.id,
        "workflow": call.workflow_name,
        "tool": _clip(call.call.name) if call.call.name is not None else None,
        "trace_id": call.trace_id,
        "argument_keys": _keys(call.call.args),
        "key_digest": keyed_digest(call.digest_key, transport_key(call.call.idempotency_key)) if call.call.idempotency_key else None,
    }
    if isinstance(call, Resolved):
        facts |= {"tool": call.tool.name, "tool_digest": call.tool.digest, "risk": call.tool.declaration.risk.value}
    if isinstance(call, Validated):
        facts["arguments_digest"] = keyed_digest(call.digest_key, canonical_json(call.args))
    return facts


def _argument_payloads(call: Proposed, decision: Decision | None, policy_input: bytes | None) -> tuple[Payload, ...]:
    if not isinstance(call, Validated) or level_of(call, decision) == "metadata":
        return ()
    body: dict[str, Any] = {"args": redacted_arguments(call), "context": dict(call.context)}
    if policy_input:
        body["policy_input"] = redact(orjson.loads(policy_input), call.tool.declaration.record.redact)
    return (Payload(kind="arguments", body=body),)


def _keys(args: Any) -> list[str]:
    return sorted(map(_clip, args))[:MAX_KEYS] if is_object(args) else []


def _clip(text: str) -> str:
    # What the model wrote goes into every search and screen: bounded, and free of what breaks stores and terminals.
    clipped = text[:MAX_TEXT]
    return clipped if clipped.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in clipped)


def _link(rel: str, decision_id: UUID) -> dict[str, str]:
    return {"rel": rel, "decision_id": str(decision_id)}
