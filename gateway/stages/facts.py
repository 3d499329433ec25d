"""What does the ledger know about this call, its run and its twins? One read, one snapshot."""

from gateway.domain.authority import has_permissions
from gateway.domain.budgets import cost_of
from gateway.domain.call import Authorized, Facts, Informed, KnownCall, Replay
from gateway.domain.catalogue import BusinessKey
from gateway.domain.decision import Refusal
from gateway.domain.identity import business_key, effect_hash, judge_known
from gateway.domain.ports import Ledger
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import Sources

LOOP_FAILURES = 3
"""Executed failures of equal input in one run, after which the input is not tried again."""


class ReadFacts:
    """Gathers what policy may know, and answers a call whose business identity is already taken."""

    name = "facts"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, call: Authorized) -> Informed | Refusal | Replay:
        """Read the ledger unless the tool declares that its policies need nothing of it."""
        declared = call.tool.declaration
        if declared.idempotency == "caller" and call.transport_key is None and not call.is_dry_run:
            return Refusal(reason_code=ReasonCode.IDEMPOTENCY_KEY_REQUIRED)
        key = None
        if isinstance(declared.idempotency, BusinessKey):
            key = business_key(declared.idempotency, _sources(call))
        facts: Facts | KnownCall | Refusal = Facts()
        if declared.facts == "all" or key is not None or call.transport_key is not None or call.call.approval_id is not None:
            facts = await self._ledger.read_facts(call, key)
        if isinstance(facts, Refusal):
            return facts
        if isinstance(facts, KnownCall):
            refusal = judge_known(facts, agent=call.principal.agent, subject=call.principal.subject, fingerprint=call.fingerprint)
            return refusal or Replay(known=facts, is_permitted=has_permissions(call.tool, call.principal))
        if facts.input_failures >= LOOP_FAILURES:
            return Refusal(reason_code=ReasonCode.LOOP_DETECTED, detail=f"{facts.input_failures} failures of this input")
        return Informed.after(
            call,
            facts=facts if declared.facts == "all" else Facts(approval=facts.approval),
            business_key=key,
            effect_hash=effect_hash(
                tenant=call.caller.tenant,
                agent=call.principal.agent,
                subject=call.principal.subject,
                workflow=call.workflow_name,
                context=call.context,
                tool=call.tool.name,
                tool_digest=call.tool.digest,
                args=call.args,
            ),
            costs=cost_of(call.tool, call.args),
        )


def _sources(call: Authorized) -> Sources:
    return Sources(args=call.args, context=call.context, subject=call.principal.subject, agent=call.principal.agent, run_id=call.run_id)
