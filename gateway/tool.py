"""What authors of python tools import; everything else of the gateway is none of a tool's business.

A tool is a function of two parameters, in a module that the operator lists under ``python_modules``:

    from gateway.tool import CallContext, NotSent, Rejected

    async def book_table(args: dict[str, Any], call: CallContext) -> dict[str, Any]:
        if args["guests"] > 12:
            raise Rejected  # the input is wrong, nothing was done
        try:
            connection = await open_connection()
        except OSError:
            raise NotSent from None  # nothing was done, the same call may be repeated
        return await connection.book(args, idempotency_key=call.downstream_key)

and a bundle names it as ``execute: {python: my_tools:book_table}``. The function may be plain (it then runs in a thread of
its own) or async. It returns a JSON value. Any other exception, and running past the tool's timeout, mean that nobody knows
whether something happened: for a tool that writes, the call is then in doubt until that is resolved.
"""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class CallContext:
    """Who is calling, and the identity of the call."""

    tenant: str
    agent: str
    subject: str
    run_id: str
    decision_id: UUID
    """The decision that allowed this call; good for the tool's own log."""
    downstream_key: str
    """Equal for all attempts of one call: give it to services that deduplicate, as their idempotency key."""


class Rejected(Exception):
    """The tool did nothing because the input is wrong; the same input will not work. Its text goes nowhere."""


class NotSent(Exception):
    """The tool certainly did nothing, for a reason that may pass (no connection); the same call may be repeated. Its text goes nowhere."""
