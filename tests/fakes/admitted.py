"""Calls that stand right before their execution, for tests of the last stages."""

from dataclasses import MISSING, fields
from typing import Any

from gateway.domain.call import Admitted, Dispatch
from gateway.domain.catalogue import FieldError, Tool, ToolDeclaration
from gateway.domain.decision import Decision
from gateway.domain.principal import Caller, Role
from gateway.domain.reasons import Effect, ReasonCode
from tests.fakes.invocations import DECISION_ID


class Anything:
    """A schema that everything fits."""

    def errors(self, value: object) -> tuple[FieldError, ...]:  # noqa: ARG002
        return ()


def compile_tool(declaration: ToolDeclaration) -> Tool:
    """A tool whose schemas take everything."""
    return Tool(declaration=declaration, digest="sha256:0", arguments=Anything(), output=None)


def admit(declaration: ToolDeclaration, dispatch: Dispatch, **more: Any) -> Admitted:
    """An admitted call of the tool; what execution does not look at is None."""
    unseen: dict[str, Any] = {
        field.name: None for field in fields(Admitted) if field.default is MISSING and field.default_factory is MISSING
    }
    seen: dict[str, Any] = {
        "caller": Caller(tenant="default", name="an-agent", roles=frozenset({Role.AGENT})),
        "decision_id": DECISION_ID,
        "tool": compile_tool(declaration),
        "args": {},
        "decision": Decision(effect=Effect.ALLOW, reason_code=ReasonCode.POLICY_ALLOWED, policy="testing"),
        "dispatch": dispatch,
        "send_before": 1.0,
    }
    return Admitted(**{**unseen, **seen, **more})
