"""``GET /v1/decisions/tail``: records as they arrive, as server-sent events, without gaps or doubles.

The id of an event is the position up to which everything was looked at, so that a reader who was cut off goes on with the
header Last-Event-ID.
"""

import asyncio
from dataclasses import replace

import structlog
from aiohttp import web

from gateway.api.log_queries import read_position, read_search
from gateway.api.problems import Problem
from gateway.api.services import CALLER, SERVICES, Services
from gateway.api.streams import TAILS, cut
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.ports import LogPage, LogQuery

LOG = structlog.get_logger("gateway.api")
POLL_S = 0.2
BEAT_S = 10.0
"""Without records, this often the reader hears that the gateway is there, and how far it has looked."""
BATCH = 200


async def tail_decisions(request: web.Request) -> web.StreamResponse:
    """Stream matching records from a position on (by default from now on) until the reader leaves or the gateway stops."""
    services, tenant = request.app[SERVICES], request[CALLER].tenant
    search, start = read_search(request), read_position(request, "from_position")
    if (seen := _read_last_event_id(request)) is not None:
        start = seen + 1
    with request.app[TAILS].take():
        size = await services.log.read_size(tenant)
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        query = LogQuery(tenant=tenant, search=search, low=min(size if start is None else start, size), limit=BATCH, newest_first=False)
        try:
            await response.write(b"retry: 1000\n" + _mark(query.low) + b"event: open\ndata: %d\n\n" % query.low)
            await _follow(services, response, query)
        except ConnectionError:
            pass  # the reader has left
        except Exception:  # the answer has begun: its reader comes back with the last id
            LOG.exception("tail_failed")
            return cut(request, response)
        return response


async def _follow(services: Services, response: web.StreamResponse, query: LogQuery) -> None:
    loop = asyncio.get_running_loop()
    said = loop.time()
    while not services.draining.is_set():
        page, size = await _look(services, query)
        if page is not None:
            for record in page.records:
                await response.write(b"id: %d\nevent: record\ndata: %s\n\n" % (record.position, record.body))
                said = loop.time()
            query = replace(query, low=size if page.bound is None else page.bound)
            if page.bound is not None:
                continue
        if loop.time() - said >= BEAT_S:
            await response.write(_mark(query.low) + b": so far\n\n")
            said = loop.time()
        await asyncio.sleep(POLL_S)


async def _look(services: Services, query: LogQuery) -> tuple[LogPage | None, int]:
    """What came since the last look, up to a size of the log; None where nothing did, or where the ledger does not answer now."""
    try:
        size = await services.log.read_size(query.tenant)
        return (await services.log.find(replace(query, high=size)) if size > query.low else None), size
    except LedgerUnavailable:
        return None, query.low


def _mark(low: int) -> bytes:
    return b"id: %d\n" % (low - 1) if low > 0 else b""


def _read_last_event_id(request: web.Request) -> int | None:
    text = request.headers.get("Last-Event-ID")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Problem(400, "HEADER_INVALID", "Last-Event-ID is the id of an event of this stream.")
    return int(text)
