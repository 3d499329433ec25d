"""``GET /v1/decisions/export``: all records of a search, oldest first, as they were when it began. Each request is itself a record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import orjson
import structlog
from aiohttp import web

from gateway.api.log_queries import read_position, read_search
from gateway.api.problems import Problem
from gateway.api.services import CALLER, SERVICES
from gateway.api.streams import EXPORTS, cut
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.drafts import export_draft
from gateway.domain.genai_attributes import genai_event
from gateway.domain.opa_event import opa_event
from gateway.domain.ports import LogQuery, StoredRecord
from gateway.domain.record_csv import write_header, write_rows
from gateway.domain.search import Pattern, Search

LOG = structlog.get_logger("gateway.api")
BATCH = 500
"""Records read and written at once: small enough to let other requests in between."""


def _ndjson(records: Sequence[StoredRecord]) -> bytes:
    return b"".join(record.body + b"\n" for record in records)


def _csv(records: Sequence[StoredRecord]) -> bytes:
    return write_rows((orjson.loads(record.body), record.leaf) for record in records).encode()


def _opa(records: Sequence[StoredRecord]) -> bytes:
    return b"".join(orjson.dumps(opa_event(orjson.loads(record.body))) + b"\n" for record in records)


def _otel(records: Sequence[StoredRecord]) -> bytes:
    return b"".join(orjson.dumps(genai_event(orjson.loads(record.body))) + b"\n" for record in records)


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """How records are written."""

    content_type: str
    write: Callable[[Sequence[StoredRecord]], bytes]
    header: bytes = b""
    decisions_only: bool = False


FORMATS = {
    "ndjson": ExportFormat(content_type="application/x-ndjson", write=_ndjson),
    "csv": ExportFormat(content_type="text/csv", write=_csv, header=write_header().encode()),
    "opa": ExportFormat(content_type="application/x-ndjson", write=_opa, decisions_only=True),
    "otel": ExportFormat(content_type="application/x-ndjson", write=_otel),
}
"""``ndjson``: the exact stored bytes of each record, one a line."""


async def export_decisions(request: web.Request) -> web.StreamResponse:
    """Stream all matching records of a range of positions. The headers name the export's own record and the range."""
    services, caller = request.app[SERVICES], request[CALLER]
    search, form = read_search(request), _read_format(request)
    low, high = read_position(request, "from_position"), read_position(request, "to_position")
    if form.decisions_only:
        search = _decisions_of(search)
    with request.app[EXPORTS].take():
        size = await services.log.read_size(caller.tenant)
        begin, end = low or 0, size if high is None else min(high, size)
        record_id = services.new_id()
        what = {name: request.query.get(name) for name in ("q", "after", "before", "format")}
        draft = export_draft(record_id, caller.tenant, by=caller.name, what=what, from_position=begin, to_position=end)
        # Nothing leaves before it is on record that it does.
        await services.ledger.note(draft, None)
        response = web.StreamResponse(
            headers={"Gateway-Export-Id": str(record_id), "Gateway-Export-From": str(begin), "Gateway-Export-To": str(end)}
        )
        response.content_type = form.content_type
        response.enable_chunked_encoding()
        await response.prepare(request)
        query = LogQuery(tenant=caller.tenant, search=search, low=begin, high=end, limit=BATCH, newest_first=False)
        try:
            await _stream(request, response, form, query, with_header=low is None)
        except ConnectionError:
            return response  # the reader has left
        except LedgerUnavailable as error:
            LOG.warning("export_cut_off", detail=error.detail)
            return cut(request, response)
        except Exception:  # the answer has begun: the only way to tell its reader is to break it off
            LOG.exception("export_failed")
            return cut(request, response)
        return response


async def _stream(request: web.Request, response: web.StreamResponse, form: ExportFormat, query: LogQuery, *, with_header: bool) -> None:
    log = request.app[SERVICES].log
    if with_header and form.header:
        await response.write(form.header)
    bound: int | None = query.low
    while bound is not None:
        page = await log.find(replace(query, low=bound))
        if page.records:
            await response.write(form.write(page.records))
        bound = page.bound
    await response.write_eof()


def _read_format(request: web.Request) -> ExportFormat:
    form = FORMATS.get(request.query.get("format", "ndjson"))
    if form is None:
        raise Problem(400, "PARAMETER_INVALID", f"`format` is one of {', '.join(FORMATS)}.")
    return form


def _decisions_of(search: Search) -> Search:
    asked = search.wanted.get("kind")
    decision = (Pattern(parts=("decision",)),)
    if asked is not None and not any(pattern.matches("decision") for pattern in asked):
        raise Problem(400, "PARAMETER_INVALID", "This `format` is for decisions; leave `kind:` out.")
    return replace(search, wanted=dict(search.wanted) | {"kind": decision})
