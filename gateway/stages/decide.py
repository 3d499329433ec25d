"""What does policy say, now, with these facts?"""

from dataclasses import replace

from gateway.domain.call import ApprovalFact, Decided, Informed
from gateway.domain.decision import Again, ApprovalRequest, Decision, PolicyFault, Refusal
from gateway.domain.policy_answer import read_answer
from gateway.domain.policy_input import policy_document
from gateway.domain.ports import PolicyEngine
from gateway.domain.reasons import Effect, ReasonCode

_STATE_CODES = {
    "denied": ReasonCode.APPROVAL_DENIED,
    "consumed": ReasonCode.APPROVAL_CONSUMED,
    "expired": ReasonCode.APPROVAL_EXPIRED,
}


class Decide:
    """Asks the policy engine, and lets nothing pass but a well-formed allow."""

    name = "decide"

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine

    async def __call__(self, call: Informed) -> Decided | Refusal | Again:
        """Evaluate the call's own revision; PolicyFault where there is no usable answer."""
        if refusal := _check_approval(call):
            return refusal
        document = policy_document(
            principal=call.principal,
            tool=call.tool,
            args=call.args,
            costs=call.costs,
            workflow=call.scope.workflow,
            agent=call.scope.agent,
            subject=call.scope.subject,
            run_id=call.run_id,
            facts=call.facts,
            approval_is_valid=False,  # nobody can grant one yet
            context=call.context,
            now=call.now,
        )
        try:
            raw = await self._engine.decide(call.bundle.revision, document)
        except PolicyFault as fault:
            if fault.reason_code is ReasonCode.POLICY_STALE:
                return Again(stage="resolve")
            raise
        answer = read_answer(raw, call.bundle)
        if isinstance(answer, Refusal):
            return replace(answer, policy_input=document)
        if answer.effect is Effect.ALLOW:
            return Decided.after(call, decision=answer, policy_input=document, engine=self._engine.name)
        return _refuse(call, answer, document)


def _refuse(call: Informed, decision: Decision, document: bytes) -> Refusal:
    refusal = Refusal(reason_code=decision.reason_code, effect=decision.effect, decision=decision, policy_input=document)
    if decision.effect is not Effect.CONFIRM:
        return refusal
    if call.scope.workflow.declaration.confirmation is None:
        # Policy asks for a person, and the workflow names none: nobody could ever agree.
        return Refusal(
            reason_code=ReasonCode.POLICY_OUTPUT_INVALID,
            detail="policy asks for confirmation in a workflow that declares none",
            decision=decision,
            policy_input=document,
        )
    if fact := call.facts.approval:
        return replace(refusal, reason_code=ReasonCode.APPROVAL_PENDING, approval=_request(fact))
    return refusal


def _check_approval(call: Informed) -> Refusal | None:
    if call.call.approval_id is None:
        return None
    fact = call.facts.approval
    if fact is None:
        return Refusal(reason_code=ReasonCode.APPROVAL_UNKNOWN)
    if fact.effect_hash != call.effect_hash:
        return Refusal(reason_code=ReasonCode.APPROVAL_OUT_OF_SCOPE)
    if fact.is_expired:
        return Refusal(reason_code=ReasonCode.APPROVAL_EXPIRED)
    code = _STATE_CODES.get(fact.state)
    return Refusal(reason_code=code) if code else None


def _request(fact: ApprovalFact) -> ApprovalRequest:
    return ApprovalRequest(approval_id=fact.approval_id, expires_at=fact.expires_at, summary=fact.summary)
