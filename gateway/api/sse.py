"""Server-sent events: the stream of a run, with ids to go on after and heartbeats in silence."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson
from aiohttp import web

from gateway.api.problems import Problem
from gateway.domain.answers import rfc3339
from gateway.domain.decision import Overloaded
from gateway.domain.runs import RunKey, StoredEvent
from gateway.runs.service import Runs

EVENT_STREAM = "text/event-stream"
HEARTBEAT_S = 15.0
"""Silence after which a comment is sent, so that proxies keep the connection."""
WRITE_TIMEOUT_S = 30.0
"""How long a client may take to receive; then the stream ends, and the client goes on where it was."""
MAX_ID = 2**53


def read_last_event_id(request: web.Request) -> int:
    """The event that the client has already: the header Last-Event-ID, 0 where it has none. Raises Problem."""
    headers = request.headers.getall("Last-Event-ID", [])
    text = headers[0] if headers else "0"
    if len(headers) > 1 or not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > MAX_ID:
        raise Problem(400, "LAST_EVENT_ID_INVALID", "Send Last-Event-ID once, as the `id` of an event of this run, or not at all.")
    return int(text)


async def stream_run(request: web.Request, runs: Runs, key: RunKey, *, after: int) -> web.StreamResponse:
    """Stream the events of a run until its end. A client that leaves ends only the stream. Raises Problem before it begins."""
    async with aclosing(runs.follow(key, after=after)) as events:
        try:
            event = await anext(events, None)
        except Overloaded:
            raise Problem(429, "OVERLOADED", "Too many streams are open here. Come back later.", headers={"Retry-After": "5"}) from None
        headers = {
            "Content-Type": f"{EVENT_STREAM}; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "Run-Id": key.run_id,
        }
        response = web.StreamResponse(headers=headers)
        try:
            await response.prepare(request)
            await _send(response, b": run\n\n" if event is None else write_event(event))
            await _send_rest(request, response, events)
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            pass  # the client has left or does not read; the run goes on without it
    return response


def write_event(event: StoredEvent) -> bytes:
    """An event as it goes over the wire. JSON has no line ends, so that it is one line of data."""
    data = orjson.dumps(dict(event.data) | {"at": rfc3339(event.at)})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.type.encode(), data)


async def _send_rest(request: web.Request, response: web.StreamResponse, events: AsyncGenerator[StoredEvent | None]) -> None:
    clock = asyncio.get_running_loop().time
    sent_at = clock()
    async for event in events:
        if request.transport is None or request.transport.is_closing():
            return
        if event is not None:
            await _send(response, write_event(event))
            sent_at = clock()
        elif clock() - sent_at >= HEARTBEAT_S:
            await _send(response, b": still here\n\n")
            sent_at = clock()


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await response.write(data)
