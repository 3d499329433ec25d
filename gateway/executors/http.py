"""Tools that are HTTP requests: ``execute: {http: …}``."""

import functools
import time
from collections.abc import Callable, Mapping
from typing import TypeGuard

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import Replay, Risk, ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.ports import Invocation
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import Sources
from gateway.executors.breaker import Breaker, Permit
from gateway.executors.connections import Connection
from gateway.executors.exchange import Exchanges
from gateway.executors.late import LATE_S, Listeners
from gateway.executors.rendering import check_request, render
from gateway.executors.slots import SlotDispatch, Slots

MAX_RESPONSE_BYTES = 256 * 1024
SLOT_WAIT_SECONDS = 0.25


class HttpExecutor:
    """Sends each call to the origin of its connection, with headers that are built afresh; each connection behind a breaker.

    A write whose time is over is listened to for a while, in its slot; at most half of the slots listen.

    Args:
        connections: What the operator configured, by the name that bundles use.
        max_in_flight: Requests at once.
        max_response_bytes: How much of an answer is read, after decompression.
        user_agent: How the gateway names itself.
        slot_wait: How long a call may wait for a free slot, in seconds.
        late_s: How long a write is listened to after its timeout, in seconds.
        clock: Seconds that never go backwards.
    """

    def __init__(
        self,
        connections: Mapping[str, Connection],
        *,
        max_in_flight: int = 256,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        user_agent: str = "agent-tool-gateway",
        slot_wait: float = SLOT_WAIT_SECONDS,
        late_s: float = LATE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = dict(connections)
        self._clock = clock
        self._slots = Slots(max_in_flight, slot_wait)
        self._breakers = {name: Breaker(clock) for name in self._connections}
        self._exchanges = Exchanges(
            max_response_bytes=max_response_bytes, user_agent=user_agent, listeners=Listeners(max_in_flight // 2, late_s), clock=clock
        )

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:
        """Why the tool's request, or its probe's, cannot be sent from here."""
        requests = [tool.execute.http, tool.probe.http if tool.probe is not None else None]
        for request in filter(None, requests):
            problem = self._check_connection(request.connection, tenant) or check_request(tool, request)
            if problem is not None:
                return problem
        return None

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:
        """Build the whole request, read the credential, pass the breaker and take a slot; the only step left is to send."""
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
        # Permit and slot last, so that no other refusal has to give them back; the permit first, for an open breaker answers at once.
        permit = self._breakers[request.connection].take()
        if not isinstance(permit, Permit):
            return Refusal(reason_code=ReasonCode.CIRCUIT_OPEN, retry_after_ms=permit, detail=f"connection {connection.name}")
        has_slot = False
        try:
            has_slot = await self._slots.take()
        finally:
            if not has_slot:
                permit.release()
        if not has_slot:
            return Refusal(reason_code=ReasonCode.OVERLOADED, detail="no free slot for http tools")
        is_read = invocation.tool.risk is Risk.READ
        deliver = self._exchanges.deliver if is_read else self._exchanges.deliver_and_listen
        return SlotDispatch(
            self._slots,
            functools.partial(deliver, connection, rendered, headers),
            timeout=invocation.tool.timeout,
            is_read=is_read,
            clock=self._clock,
            permit=permit,
        )

    async def close(self) -> None:
        """End all listening and close all connections."""
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
