"""The tool of the benchmarks: it does nothing, so that what is measured is the gateway."""

from typing import Any

from gateway.tool import CallContext


async def do_nothing(args: dict[str, Any], _call: CallContext) -> dict[str, Any]:
    """Answer the arguments' number."""
    return {"n": args["n"]}
