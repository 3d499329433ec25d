"""Tools that the agent's own client performs: ``execute: {client: {kind: …}}``. Nothing runs here."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import Tool, ToolDeclaration
from gateway.domain.classify import classify
from gateway.domain.decision import Refusal
from gateway.domain.outcome import CallState, Delivery, Outcome, Phase
from gateway.domain.ports import Invocation
from gateway.domain.reasons import ReasonCode
from gateway.domain.redaction import redact
from gateway.executors.answers import clean_value

MAX_RESULT_BYTES = 256 * 1024


class ClientExecutor:
    """Hands calls out: what the client is to do was committed with the admission, and its result comes by a route of its own."""

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:  # noqa: ARG002 - the port
        """Nothing here can keep a client from performing it."""
        return None

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:  # noqa: ARG002 - the port
        """Nothing is taken."""
        return _HandOut()

    async def close(self) -> None:
        """Nothing to close."""


class _HandOut(Dispatch):
    async def send(self) -> Delivery:
        """Hand it out; the answer to the agent says how."""
        return Delivery(phase=Phase.HANDED_OUT)

    def release(self) -> None:
        """Nothing was taken."""


def read_report(tool: Tool, obligations: Iterable[Mapping[str, Any]], status: Literal["ok", "no_match", "failed"], data: Any) -> Outcome:
    """The outcome that a client's word stands for; what policy obliged to blank in the decision's record is blanked."""
    cleaned = clean_value(data, MAX_RESULT_BYTES)
    delivered = Delivery(phase=Phase.ANSWERED, value=cleaned.value, unusable=cleaned.unusable)
    if status == "failed":
        return Outcome(state=CallState.FAILED, reason_code=ReasonCode.EXECUTION_FAILED, delivery=delivered)
    if status == "no_match":
        return Outcome(state=CallState.SUCCEEDED, reason_code=ReasonCode.EXECUTION_NO_MATCH, delivery=delivered)
    outcome = classify(tool.declaration, tool.output, delivered)
    paths = [f"/result{path}" for duty in obligations if duty["type"] == "redact_result" for path in duty["paths"]]
    return replace(outcome, data=redact({"result": outcome.data}, paths)["result"])
