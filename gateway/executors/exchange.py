"""One HTTP exchange with a tool service: at most one request on the wire, and an account of how far it got.

Whether something may have reached the service is read off one fact: whether aiohttp had a connection to hand the request
to. Before that nothing can have been sent; from then on everything that is not a complete answer is `Phase.LOST`.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType
from multidict import CIMultiDict
from yarl import URL

from gateway.domain.outcome import Delivery, Phase
from gateway.executors.addresses import AddressRefusedError, open_public_socket
from gateway.executors.answers import Cleaned, read_answer
from gateway.executors.connections import Connection
from gateway.executors.rendering import RenderedRequest

# Shorter than the idle time of the common servers (gunicorn 2 s, uvicorn and Node 5 s): a request that meets a connection
# which its server is just closing would be lost, and for a write that is an outcome nobody knows.
_KEEP_ALIVE_SECONDS = 1.5


@dataclass
class _Attempt:
    """How far one exchange got."""

    has_connection: bool = False
    first_error: Exception | None = field(default=None, repr=False)

    async def pass_once(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """A client middleware that lets one request through.

        aiohttp sends GET, PUT and DELETE again by itself after a disconnect; here that second pass meets the first error.
        """
        if self.first_error is not None:
            raise self.first_error
        try:
            return await handler(request)
        except Exception as error:
            self.first_error = error
            raise


async def _note_connection(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
    context.trace_request_ctx.has_connection = True


class Exchanges:
    """The HTTP side of the gateway: pooled connections, apart for internal and public origins."""

    def __init__(self, *, max_response_bytes: int, user_agent: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_response_bytes = max_response_bytes
        self._user_agent = user_agent
        self._clock = clock
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def deliver(self, connection: Connection, request: RenderedRequest, headers: Mapping[str, str], timeout: float) -> Delivery:  # noqa: ASYNC109 (the answer to a timeout is a value, not an exception)
        """Send `request` to the connection's origin once and read its answer within `timeout` seconds. Never raises."""
        attempt = _Attempt()
        started = self._clock()
        facts: dict[str, Any]
        try:
            async with asyncio.timeout(timeout):
                facts = await self._exchange(connection, request, headers, attempt)
        except Exception as error:  # noqa: BLE001 (a send that raised is a send whose outcome somebody must still book)
            phase = Phase.LOST if attempt.has_connection else Phase.NOT_SENT
            facts = {"phase": phase, "problem": _name_problem(error)}
        return Delivery(**facts, duration_ms=(self._clock() - started) * 1000)

    async def close(self) -> None:
        """Close all connections."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def _exchange(
        self, connection: Connection, request: RenderedRequest, headers: Mapping[str, str], attempt: _Attempt
    ) -> dict[str, Any]:
        response = await self._session(is_internal=connection.internal).request(
            request.method,
            URL(connection.origin + request.path + ("?" + request.query if request.query else ""), encoded=True),
            data=request.body,
            headers=self._headers(request, headers),
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
            middlewares=(attempt.pass_once,),
            trace_request_ctx=attempt,
        )
        try:
            facts: dict[str, Any] = {"phase": Phase.ANSWERED, "status": response.status}
            # Only a success is read: what a failure says is not told to anybody, and its status decides alone.
            if 200 <= response.status < 300:
                cleaned = await _read_body(response, self._max_response_bytes)
                facts |= {"value": cleaned.value, "unusable": cleaned.unusable}
            return facts
        finally:
            response.release()  # back to the pool when the answer is complete, closed otherwise

    def _headers(self, request: RenderedRequest, own: Mapping[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict({"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": self._user_agent})
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(own)
        return headers

    def _session(self, *, is_internal: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(is_internal)
        if session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_create_end.append(_note_connection)
            trace.on_connection_reuseconn.append(_note_connection)
            session = self._sessions[is_internal] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,  # slots bound it
                    keepalive_timeout=_KEEP_ALIVE_SECONDS,
                    resolver=aiohttp.ThreadedResolver(),
                    socket_factory=None if is_internal else open_public_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                auto_decompress=False,  # read_body bounds it
                trust_env=False,
                trace_configs=[trace],
            )
        return session


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> Cleaned:
    """The answer's JSON value, never holding more than `limit` bytes of it, decompressed."""
    encoding = ",".join(response.headers.getall("Content-Encoding", [])).strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        return Cleaned(unusable="invalid")  # we offered gzip only
    gunzip = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += gunzip.decompress(chunk, limit + 1 - len(body)) if gunzip else chunk
            if len(body) > limit:
                return Cleaned(unusable="too_large")
    except zlib.error:
        return Cleaned(unusable="invalid")
    if gunzip and (not gunzip.eof or gunzip.unused_data) and response.content.total_bytes:
        return Cleaned(unusable="invalid")
    return read_answer(bytes(body))


def _name_problem(error: Exception) -> str:  # noqa: PLR0911 (a table)
    match error:
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientConnectorDNSError():
            return "dns"
        case aiohttp.ClientSSLError():
            return "tls"
        case aiohttp.ClientConnectorError():
            return "address" if isinstance(error.os_error, AddressRefusedError) else "connect"
        case aiohttp.ClientPayloadError():
            return "cut_short"
        case aiohttp.ClientResponseError():
            return "garbage"
        case aiohttp.ClientConnectionError() | OSError():
            return "reset"
        case _:
            return "fault"
