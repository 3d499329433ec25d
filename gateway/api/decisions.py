"""Auditors' routes: find records, read one with everything that belongs to it."""

import base64
import hashlib
import re
from dataclasses import replace
from datetime import datetime

import orjson
from aiohttp import web

from gateway.api.calls import read_id
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.domain.ports import LogQuery

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
_FIELDS = {
    "kind": "kind",
    "agent": "agent",
    "subject": "subject",
    "run": "run_id",
    "workflow": "workflow",
    "tool": "tool",
    "effect": "effect",
    "reason": "reason_code",
    "status": "status",
}
_TERM = re.compile(r"([a-z]+):(\S+)")


async def list_decisions(request: web.Request) -> web.Response:
    """One page of records, newest first."""
    query = _read_query(request)
    page = await request.app[SERVICES].log.find(query)
    following = _write_cursor(query, page.next_position) if page.next_position is not None else None
    return json_response({"items": page.items, "next_cursor": following})


async def get_decision(request: web.Request) -> web.Response:
    """One record with its payloads and the records linked to it."""
    found = await request.app[SERVICES].log.get(request[CALLER].tenant, read_id(request.match_info["decision_id"]))
    if found is None:
        raise Problem(404, "NOT_FOUND", "There is no such record.")
    return json_response(found)


def _read_query(request: web.Request) -> LogQuery:
    limit = request.query.get("limit", str(DEFAULT_LIMIT))
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:6]) <= MAX_LIMIT:
        raise Problem(400, "PARAMETER_INVALID", f"`limit` is a number from 1 to {MAX_LIMIT}.")
    query = LogQuery(
        tenant=request[CALLER].tenant,
        terms=_read_terms(request.query.get("q", "")),
        after=_read_time(request, "after"),
        before=_read_time(request, "before"),
        limit=int(limit),
    )
    cursor = request.query.get("cursor")
    return query if cursor is None else replace(query, below_position=_read_cursor(query, cursor))


def _read_terms(text: str) -> tuple[tuple[str, str], ...]:
    terms: list[tuple[str, str]] = []
    for word in text.split():
        match = _TERM.fullmatch(word)
        if match is None or match[1] not in _FIELDS or "\0" in word:
            raise Problem(400, "QUERY_INVALID", f"`q` is a list of field:value with the fields {', '.join(_FIELDS)}.")
        terms.append((_FIELDS[match[1]], match[2]))
    return tuple(terms)


def _read_time(request: web.Request, name: str) -> datetime | None:
    text = request.query.get(name)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise Problem(400, "PARAMETER_INVALID", f"`{name}` is a time such as 2026-11-01T00:00:00Z.")
    return time


def _write_cursor(query: LogQuery, position: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([position, _filters_of(query)])).decode()


def _read_cursor(query: LogQuery, cursor: str) -> int:
    # Bound to its tenant and filters: a cursor of another list is a mistake, not page one.
    try:
        position, filters = orjson.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except (ValueError, TypeError):
        position, filters = None, None
    if type(position) is not int or not 0 <= position < 2**63 or filters != _filters_of(query):
        raise Problem(400, "CURSOR_INVALID", "Use a cursor of this very list, or leave it out to begin anew.")
    return position


def _filters_of(query: LogQuery) -> str:
    filters = repr((query.tenant, sorted(query.terms), query.after, query.before))
    return hashlib.sha256(filters.encode()).hexdigest()[:16]
