"""Do arguments and context fit their schemas? Integral floats become integers; nothing else is changed or filled in."""

from typing import Any

from gateway.domain.call import Resolved, Validated
from gateway.domain.canonical import integral_floats_as_integers
from gateway.domain.catalogue import FieldError
from gateway.domain.decision import Refusal
from gateway.domain.json_values import is_object
from gateway.domain.reasons import ReasonCode


class Validate:
    """Checks a call against the compiled schemas of its tool and its workflow."""

    name = "validate"

    async def __call__(self, call: Resolved) -> Validated | Refusal:
        """Normalise and check."""
        if call.call.defects:
            return Refusal(reason_code=ReasonCode.ARGUMENTS_INVALID, errors=call.call.defects)
        args: Any = {} if call.call.args is None else integral_floats_as_integers(call.call.args)
        if not is_object(args):
            return Refusal(reason_code=ReasonCode.ARGUMENTS_INVALID, errors=(FieldError(path="", message="must be an object"),))
        if errors := call.tool.arguments.errors(args):
            return Refusal(reason_code=ReasonCode.ARGUMENTS_INVALID, errors=errors)
        if errors := call.scope.workflow.context.errors(dict(call.context)):
            return Refusal(reason_code=ReasonCode.CONTEXT_INVALID, errors=errors)
        return Validated.after(call, args=args)
