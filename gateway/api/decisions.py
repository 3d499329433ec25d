"""Auditors' routes: find records, read one with everything that belongs to it."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from gateway.api.calls import read_id
from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.domain.ports import LogQuery
from gateway.domain.search import CLOSED_VALUES, SEARCH_FIELDS

_TERM = re.compile(r"([a-z]+):(\S+)")
_REASON_CODE = re.compile(r"[A-Z_0-9]+")
_YEARS = range(1970, 10_000)


async def list_decisions(request: web.Request) -> web.Response:
    """One page of records, newest first."""
    query = _read_query(request)
    page = await request.app[SERVICES].log.find(query)
    following = write_cursor(request, _list_of(query), page.next_position) if page.next_position is not None else None
    return json_response({"items": page.items, "next_cursor": following})


async def get_decision(request: web.Request) -> web.Response:
    """One record with its payloads and the records linked to it."""
    found = await request.app[SERVICES].log.get(request[CALLER].tenant, read_id(request.match_info["decision_id"]))
    if found is None:
        raise Problem(404, "NOT_FOUND", "There is no such record.")
    return json_response(found)


def _read_query(request: web.Request) -> LogQuery:
    after, before = _read_time(request, "after"), _read_time(request, "before")
    if after is not None and before is not None and after >= before:
        raise Problem(400, "PARAMETER_INVALID", "`after` must be earlier than `before`; nothing lies between them.")
    query = LogQuery(
        tenant=request[CALLER].tenant,
        terms=_read_terms(request.query.get("q", "")),
        after=after,
        before=before,
        limit=read_limit(request),
    )
    return replace(query, below_position=read_cursor(request, _list_of(query), _read_position))


def _read_terms(text: str) -> tuple[tuple[str, str], ...]:
    terms: list[tuple[str, str]] = []
    for word in text.split():
        match = _TERM.fullmatch(word)
        if match is None or match[1] not in SEARCH_FIELDS or "\0" in word:
            raise Problem(400, "QUERY_INVALID", f"`q` is a list of field:value with the fields {', '.join(SEARCH_FIELDS)}.")
        field, value = match[1], match[2]
        if field in CLOSED_VALUES and value not in CLOSED_VALUES[field]:
            raise Problem(400, "QUERY_INVALID", f"`{field}` is one of {', '.join(CLOSED_VALUES[field])}.")
        if field == "reason" and not _REASON_CODE.fullmatch(value):
            raise Problem(400, "QUERY_INVALID", "`reason` is a reason code such as TOOL_UNKNOWN: capitals, digits and _.")
        terms.append((SEARCH_FIELDS[field], value))
    return tuple(terms)


def _read_time(request: web.Request, name: str) -> datetime | None:
    text = request.query.get(name)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        # In UTC at once: a zone can push the first and the last day out of what can be calculated with.
        time = None if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        time = None
    if time is None or time.year not in _YEARS:
        raise Problem(400, "PARAMETER_INVALID", f"`{name}` is a time such as 2026-11-01T00:00:00Z, not before {_YEARS[0]}.")
    return time


def _read_position(place: Any) -> int | None:
    return place if type(place) is int and 0 <= place < 2**63 else None


def _list_of(query: LogQuery) -> tuple[object, ...]:
    return ("decisions", query.tenant, sorted(query.terms), query.after, query.before)
