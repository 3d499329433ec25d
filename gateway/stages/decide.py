"""What does policy say, now, with these facts?"""

from dataclasses import replace
from uuid import UUID

from gateway.domain.approvals import ApprovalState
from gateway.domain.call import Decided, Informed
from gateway.domain.decision import Again, Decision, PolicyFault, Refusal
from gateway.domain.policy_answer import read_answer
from gateway.domain.policy_input import policy_document
from gateway.domain.ports import Ledger, PolicyEngine
from gateway.domain.reasons import Effect, ReasonCode

_REFUSALS = {
    ApprovalState.CONSUMED: ReasonCode.APPROVAL_CONSUMED,
    ApprovalState.DENIED: ReasonCode.APPROVAL_DENIED,
    ApprovalState.EXPIRED: ReasonCode.APPROVAL_EXPIRED,
}


class Decide:
    """Asks the policy engine, and lets nothing pass but a well-formed allow."""

    name = "decide"

    def __init__(self, engine: PolicyEngine, ledger: Ledger) -> None:
        self._engine = engine
        self._ledger = ledger

    async def __call__(self, call: Informed) -> Decided | Refusal | Again:
        """Evaluate the call's own revision; PolicyFault where there is no usable answer."""
        if refusal := _check_approval(call):
            return refusal
        grant = _grant_of(call)
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
            approval_is_valid=grant is not None,
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
            return Decided.after(call, decision=answer, policy_input=document, engine=self._engine.name, grant=grant)
        return await self._refuse(call, answer, document)

    async def _refuse(self, call: Informed, decision: Decision, document: bytes) -> Refusal:
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
        approval = call.facts.approval or await self._ledger.find_standing_approval(call)
        if approval is None:
            return refusal
        match approval.now:
            case ApprovalState.DENIED:
                return replace(refusal, reason_code=ReasonCode.APPROVAL_DENIED, effect=Effect.DENY, dissent=approval.dissent)
            case ApprovalState.PENDING:
                return replace(refusal, reason_code=approval.waiting_code, approval=approval.request)
            case _:
                return replace(refusal, approval=approval.request)


def _check_approval(call: Informed) -> Refusal | None:
    """Why the approval that the call named is of no use to it; one of another call stays what it is."""
    if call.call.approval_id is None:
        return None
    fact = call.facts.approval
    if fact is None:
        return Refusal(reason_code=ReasonCode.APPROVAL_UNKNOWN)
    if fact.effect_hash != call.effect_hash:
        return Refusal(reason_code=ReasonCode.APPROVAL_OUT_OF_SCOPE)
    state = ApprovalState.EXPIRED if fact.is_expired and fact.now is ApprovalState.DENIED else fact.now
    code = _REFUSALS.get(state)
    return Refusal(reason_code=code, dissent=fact.dissent if state is ApprovalState.DENIED else None) if code else None


def _grant_of(call: Informed) -> UUID | None:
    """The approval that lets the call pass where policy asks for a person."""
    fact = call.facts.approval
    return UUID(fact.approval_id) if fact is not None and fact.now is ApprovalState.GRANTED else None
