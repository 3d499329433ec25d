"""Do the agent and the subject both have every permission that the tool needs?"""

from gateway.domain.authority import has_permissions
from gateway.domain.call import Authorized, Validated
from gateway.domain.decision import Refusal
from gateway.domain.reasons import ReasonCode


class Authorize:
    """Checks the intersection of the agent's and the subject's permissions."""

    name = "authorize"

    async def __call__(self, call: Validated) -> Authorized | Refusal:
        """Compute the principal and check it."""
        principal = call.scope.principal
        if not has_permissions(call.tool, principal):
            return Refusal(reason_code=ReasonCode.PERMISSION_MISSING)
        return Authorized.after(call, principal=principal)
