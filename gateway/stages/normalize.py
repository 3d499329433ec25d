"""What does the tool's answer mean? By the tool's result rules, the default classes and its output schema."""

from dataclasses import replace

from gateway.domain.call import Executed, Normalized
from gateway.domain.classify import classify
from gateway.domain.drafts import result_redactions
from gateway.domain.outcome import CallState, Outcome, Phase
from gateway.domain.reasons import ReasonCode
from gateway.domain.redaction import redact


class Normalize:
    """Turns a delivery into the outcome that is booked and told."""

    name = "normalize"

    async def __call__(self, call: Executed) -> Normalized:
        """Classify, then blank what policy obliged to blank."""
        if call.delivered.phase is Phase.HANDED_OUT:
            pending = Outcome(state=CallState.PENDING_CLIENT, reason_code=ReasonCode.IN_PROGRESS, delivery=call.delivered)
            return Normalized.after(call, outcome=pending)
        outcome = classify(call.tool.declaration, call.tool.output, call.delivered)
        if outcome.data is not None and (paths := result_redactions(call.decision)):
            blanked = redact({"result": outcome.data}, [f"/result{path}" for path in paths])
            outcome = replace(outcome, data=blanked["result"])
        return Normalized.after(call, outcome=outcome)
