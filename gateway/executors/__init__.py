"""Making allowed calls real: one executor a kind of tool, and the router that picks it."""

from collections.abc import Mapping

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.ports import Executor, Invocation
from gateway.domain.reasons import ReasonCode


class Executors:
    """An `Executor` that hands each tool to the one for the kind that it declares (``http``, ``python``, ``client``)."""

    def __init__(self, by_kind: Mapping[str, Executor]) -> None:
        self._by_kind = dict(by_kind)

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:
        """Why this tool cannot run here, or None."""
        kind = tool.execute.kind
        executor = self._by_kind.get(kind)
        return f"this gateway cannot run tools of kind {kind}" if executor is None else executor.check(tool, tenant)

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:
        """What the kind's executor prepares; a kind without one is refused."""
        kind = invocation.tool.execute.kind
        executor = self._by_kind.get(kind)
        if executor is None:
            return Refusal(reason_code=ReasonCode.TOOL_DISABLED, detail=f"this gateway cannot run tools of kind {kind}")
        return await executor.prepare(invocation)

    async def close(self) -> None:
        """Close every executor."""
        for executor in self._by_kind.values():
            await executor.close()
