"""Is the tool known, and exposed in a workflow that this agent was granted for this subject?"""

from gateway.domain.authority import find_scope, find_tool
from gateway.domain.call import Recalled, Resolved
from gateway.domain.catalogue import FieldError
from gateway.domain.decision import Refusal
from gateway.domain.reasons import ReasonCode


class Resolve:
    """Finds the workflow, the subject and the tool of a call."""

    name = "resolve"

    async def __call__(self, call: Recalled) -> Resolved | Refusal:
        """Look names up in the call's bundle."""
        if call.caller.key_id in call.controls.revoked_keys:
            return Refusal(reason_code=ReasonCode.AGENT_SUSPENDED, detail="its key was revoked meanwhile")
        scope = find_scope(call.bundle, call.caller.name, call.workflow_name, call.on_behalf_of, controls=call.controls)
        if isinstance(scope, ReasonCode):
            return Refusal(reason_code=scope)
        if not call.call.name:
            missing = FieldError(path="/name", message="name the tool to call")
            return Refusal(reason_code=ReasonCode.CALL_NAME_MISSING, errors=(missing,))
        tool = find_tool(call.bundle, scope, call.call.name, controls=call.controls)
        if isinstance(tool, ReasonCode):
            return Refusal(reason_code=tool)
        return Resolved.after(call, tool=tool, scope=scope)
