"""One HTTP exchange with a tool service: at most one request on the wire, and an account of how far it got.

Whether something may have reached the service is read off one fact: whether the request was handed to a connection. Before
that nothing can have been sent; from then on everything that is not a complete answer is `Phase.LOST`.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType
from aiohttp.connector import Connection as Connected
from multidict import CIMultiDict
from yarl import URL

from gateway.domain.outcome import Delivery, Phase
from gateway.executors.addresses import AddressRefusedError, open_public_socket
from gateway.executors.answers import Cleaned, read_answer
from gateway.executors.connections import Connection
from gateway.executors.late import Listeners, read_result
from gateway.executors.rendering import RenderedRequest
from gateway.executors.retry_after import read_retry_after

# Shorter than the idle time of the common servers (gunicorn 2 s, uvicorn and Node 5 s): a request that meets a connection
# which its server is just closing would be lost, and for a write that is an outcome nobody knows.
_KEEP_ALIVE_SECONDS = 1.5


@dataclass
class _Attempt:
    """How far one exchange got."""

    clock: Callable[[], float]
    timeout: float
    started: float = 0.0
    may_have_arrived: bool = False
    first_error: Exception | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    async def pass_once(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """A client middleware that lets one request through.

        aiohttp sends GET, PUT and DELETE again by itself after a disconnect; here that second pass meets the first error.
        """
        if self.first_error is not None:
            raise self.first_error
        if isinstance(request, _Request):
            request.attempt = self
        try:
            return await handler(request)
        except Exception as error:
            self.first_error = error
            raise

    def begin_sending(self) -> None:
        """From here on bytes may leave. TimeoutError where the time is over: a process that was frozen must not send any more."""
        if self.clock() >= self.started + self.timeout:
            raise TimeoutError
        self.may_have_arrived = True

    def delivery(self, **facts: Any) -> Delivery:
        """A delivery that took as long as it is since the start."""
        return Delivery(**facts, duration_ms=(self.clock() - self.started) * 1000)

    def without_answer(self, problem: str, late: asyncio.Task[Delivery] | None = None) -> Delivery:
        """The delivery while there is no answer."""
        return self.delivery(phase=Phase.LOST if self.may_have_arrived else Phase.NOT_SENT, problem=problem, late=late)


class _Request(aiohttp.ClientRequest):
    """A request that tells its attempt when it is handed to a connection, right before its first byte."""

    attempt: _Attempt | None = None

    async def send(self, conn: Connected) -> aiohttp.ClientResponse:
        """Write the request, unless its time is over."""
        if self.attempt is None:
            raise RuntimeError("a request outside an exchange")
        self.attempt.begin_sending()
        return await super().send(conn)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Exchanges:
    """The HTTP side of the gateway: pooled connections, apart for internal and public origins.

    Args:
        max_response_bytes: How much of an answer is read, after decompression.
        user_agent: How the gateway names itself.
        listeners: Where writes whose time is over are listened to.
        clock: Seconds that never go backwards.
        now: The time of day, for dates in Retry-After.
    """

    def __init__(
        self,
        *,
        max_response_bytes: int,
        user_agent: str,
        listeners: Listeners,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._max_response_bytes = max_response_bytes
        self._user_agent = user_agent
        self._listeners = listeners
        self._clock = clock
        self._now = now
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._running: set[asyncio.Task[Delivery]] = set()

    async def deliver(self, connection: Connection, request: RenderedRequest, headers: Mapping[str, str], timeout: float) -> Delivery:  # noqa: ASYNC109 (the answer to a timeout is a value, not an exception)
        """Send `request` to the connection's origin once and read its answer within `timeout` seconds. Never raises."""
        attempt = _Attempt(self._clock, timeout)
        try:
            async with asyncio.timeout(timeout):
                return await self._account(connection, request, headers, attempt)
        except TimeoutError:
            return attempt.without_answer("timeout")

    async def deliver_and_listen(
        self,
        connection: Connection,
        request: RenderedRequest,
        headers: Mapping[str, str],
        timeout: float,  # noqa: ASYNC109 (the same)
    ) -> Delivery:
        """As `deliver`; a request that may have arrived stays open after its time, and `late` gives what still comes."""
        attempt = _Attempt(self._clock, timeout)
        exchange = asyncio.create_task(self._account(connection, request, headers, attempt))
        self._running.add(exchange)
        exchange.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({exchange}, timeout=timeout)
        except asyncio.CancelledError:
            exchange.cancel()
            raise
        if exchange.done():
            return read_result(exchange)
        late = self._listeners.listen(exchange, exchange.cancel) if attempt.may_have_arrived else None
        if late is None:
            exchange.cancel()
            await asyncio.wait({exchange})
            if not exchange.cancelled():
                return exchange.result()  # it came just now
        return attempt.without_answer("timeout", late)

    async def close(self) -> None:
        """End all listening, then close all connections."""
        await self._listeners.close()
        if self._running:
            for exchange in self._running:
                exchange.cancel()
            await asyncio.wait(self._running)
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def _account(self, connection: Connection, request: RenderedRequest, headers: Mapping[str, str], attempt: _Attempt) -> Delivery:
        try:
            facts = await self._exchange(connection, request, headers, attempt)
        except Exception as error:  # noqa: BLE001 (a send that raised is a send whose outcome somebody must still book)
            return attempt.without_answer(_name_problem(error))
        return attempt.delivery(**facts)

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
        )
        try:
            facts: dict[str, Any] = {"phase": Phase.ANSWERED, "status": response.status}
            # Only a success is read: what a failure says is not told to anybody, and its status decides alone.
            if 200 <= response.status < 300:
                cleaned = await _read_body(response, self._max_response_bytes)
                facts |= {"value": cleaned.value, "unusable": cleaned.unusable}
            else:
                facts["retry_after_ms"] = read_retry_after(response.headers.get("Retry-After"), self._now())
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
                request_class=_Request,
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
