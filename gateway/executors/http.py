"""Tools that are HTTP requests: ``execute: {http: …}``."""

from collections.abc import Mapping
from typing import TypeGuard

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import Replay, ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.ports import Invocation
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import Sources
from gateway.executors.connections import Connection
from gateway.executors.exchange import Exchanges
from gateway.executors.rendering import check_request, render
from gateway.executors.slots import SlotDispatch, Slots

MAX_RESPONSE_BYTES = 256 * 1024
SLOT_WAIT_SECONDS = 0.25


class HttpExecutor:
    """Sends each call to the origin of its connection, once, with headers that are built afresh.

    Args:
        connections: What the operator configured, by the name that bundles use.
        max_in_flight: Requests at once.
        max_response_bytes: How much of an answer is read, after decompression.
        user_agent: How the gateway names itself.
        slot_wait: How long a call may wait for a free slot, in seconds.
    """

    def __init__(
        self,
        connections: Mapping[str, Connection],
        *,
        max_in_flight: int = 256,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        user_agent: str = "agent-tool-gateway",
        slot_wait: float = SLOT_WAIT_SECONDS,
    ) -> None:
        self._connections = dict(connections)
        self._slots = Slots(max_in_flight, slot_wait)
        self._exchanges = Exchanges(max_response_bytes=max_response_bytes, user_agent=user_agent)

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:
        """Why the tool's request, or its probe's, cannot be sent from here."""
        requests = [tool.execute.http, tool.probe.http if tool.probe is not None else None]
        for request in filter(None, requests):
            problem = self._check_connection(request.connection, tenant) or check_request(tool, request)
            if problem is not None:
                return problem
        return None

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:
        """Build the whole request, read the credential and take a slot; the only step left is to send."""
        request = invocation.tool.execute.http
        assert request is not None, "the router sends only http tools here"  # noqa: S101
        if (problem := self._check_connection(request.connection, invocation.tenant)) is not None:
            return Refusal(reason_code=ReasonCode.TOOL_DISABLED, detail=problem)
        rendered = render(request, _sources(invocation))
        if isinstance(rendered, Refusal):
            return rendered
        connection = self._connections[request.connection]
        headers = _headers(invocation, connection)
        if isinstance(headers, Refusal):
            return headers
        # Last, so that no other refusal has to give it back.
        if not await self._slots.take():
            return Refusal(reason_code=ReasonCode.OVERLOADED, detail="no free slot for http tools")
        return SlotDispatch(self._slots, lambda: self._exchanges.deliver(connection, rendered, headers, invocation.tool.timeout))

    async def close(self) -> None:
        """Close all connections."""
        await self._exchanges.close()

    def _check_connection(self, name: str, tenant: str) -> str | None:
        connection = self._connections.get(name)
        if connection is None:
            return f"the operator has no connection named {name}"
        return None if connection.serves(tenant) else f"the connection {name} is not for this tenant"


def _sources(invocation: Invocation) -> Sources:
    return Sources(
        args=invocation.args,
        context=invocation.context,
        subject=invocation.subject,
        agent=invocation.agent,
        run_id=invocation.run_id,
        downstream_key=invocation.downstream_key,
    )


def _headers(invocation: Invocation, connection: Connection) -> dict[str, str] | Refusal:
    tool = invocation.tool
    headers = {"X-Gateway-Call-Id": str(invocation.decision_id)}
    if tool.replay is Replay.KEYED and tool.keyed is not None:
        headers[tool.keyed.header] = invocation.downstream_key
    if connection.credential is not None:
        try:
            token = connection.credential()
        except (OSError, LookupError, ValueError):
            token = ""
        if not _is_header_safe(token):
            return Refusal(reason_code=ReasonCode.EXECUTION_TEMPORARY, detail=f"no usable credential for the connection {connection.name}")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _is_header_safe(token: object) -> TypeGuard[str]:
    return isinstance(token, str) and token != "" and token.isascii() and token.isprintable()
