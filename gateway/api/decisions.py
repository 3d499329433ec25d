"""Auditors' routes: find records, count them, read one with everything that belongs to it, follow a run."""

from typing import Annotated, Any

import orjson
from aiohttp import web
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.api.calls import read_id
from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.envelope import read_plain_request
from gateway.api.log_queries import name_search, read_fields, read_search
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.api.shapes import Body
from gateway.domain.drafts import reveal_draft
from gateway.domain.ports import LogCounts, LogQuery, StoredRecord
from gateway.domain.search import SEARCH_FIELDS, Pattern, Search

MAX_FACET_VALUES = 50
"""Values of a field that are told with their counts, the most frequent ones."""

SHORTEST_REASON = 5
LONGEST_REASON = 500

_WORDS = {name: word for word, name in SEARCH_FIELDS.items()}


def _read_reason(text: str) -> str:
    text = text.strip()
    if not text.isprintable() or len(text) < SHORTEST_REASON:
        raise PydanticCustomError("reason_unusable", "must be one line of printable characters, not only blanks")
    return text


class Reveal(Body):
    """Body of ``POST /v1/decisions/{decision_id}/reveal``: why somebody must see the payloads."""

    reason: Annotated[
        str,
        Field(
            min_length=SHORTEST_REASON,
            max_length=LONGEST_REASON,
            description="One line of printable characters, not counting blanks around it. It stays in the log.",
        ),
        AfterValidator(_read_reason),
    ]


async def list_decisions(request: web.Request) -> web.Response:
    """One page of records, newest first, and how often each value of some fields occurs."""
    log, tenant = request.app[SERVICES].log, request[CALLER].tenant
    search, fields, of_list = read_search(request), read_fields(request, "facets"), ("decisions", *name_search(request))
    query = LogQuery(tenant=tenant, search=search, limit=read_limit(request), high=read_cursor(request, of_list, _read_position))
    page = await log.find(query)
    answer: dict[str, Any] = {
        "items": embed(page.records),
        "next_cursor": None if page.bound is None else write_cursor(request, of_list, page.bound),
    }
    if fields:
        answer["facets"] = _facets(await log.count(LogQuery(tenant=tenant, search=search), fields))
    return json_response(answer)


async def get_decision(request: web.Request) -> web.Response:
    """One record with the records linked to it, and which payloads there are."""
    found = await request.app[SERVICES].log.get(request[CALLER].tenant, read_id(request.match_info["decision_id"]))
    if found is None:
        raise Problem(404, "NOT_FOUND", "There is no such record.")
    return json_response(found)


async def reveal_payloads(request: web.Request) -> web.Response:
    """The payloads of a record, to an auditor who says why; that is a record itself."""
    services, caller = request.app[SERVICES], request[CALLER]
    decision_id = read_id(request.match_info["decision_id"])
    body = await read_plain_request(request, Reveal)
    found = await services.log.get(caller.tenant, decision_id)
    if found is None:
        raise Problem(404, "NOT_FOUND", "There is no such record.")
    record_id = services.new_id()
    # Nobody sees anything before it is on record.
    await services.ledger.note(reveal_draft(record_id, found["record"], by=caller.name, reason=body.reason), decision_id)
    return json_response({"reveal_id": str(record_id), "payloads": await services.log.reveal(caller.tenant, decision_id)})


async def get_timeline(request: web.Request) -> web.Response:
    """One page of what happened in a run, oldest first."""
    log, tenant, run_id = request.app[SERVICES].log, request[CALLER].tenant, request.match_info["run_id"]
    agent, limit = request.query.get("agent"), read_limit(request)
    if "\0" in f"{run_id}{agent}":
        raise Problem(404, "NOT_FOUND", "There is no such run.")
    wanted = {"run_id": (Pattern(parts=(run_id,)),)} | ({"agent": (Pattern(parts=(agent,)),)} if agent is not None else {})
    of_list = ("timeline", run_id, agent)
    low = read_cursor(request, of_list, _read_position)
    page = await log.find(LogQuery(tenant=tenant, search=Search(wanted=wanted), low=low or 0, limit=limit, newest_first=False))
    if not page.records and low is None:
        raise Problem(404, "NOT_FOUND", "There is no such run.")
    following = None if page.bound is None else write_cursor(request, of_list, page.bound)
    return json_response({"run_id": run_id, "items": embed(page.records), "next_cursor": following})


def embed(records: tuple[StoredRecord, ...]) -> list[orjson.Fragment]:
    """Records as parts of a JSON answer, byte for byte as they are stored."""
    return [orjson.Fragment(record.body) for record in records]


def _facets(counts: LogCounts) -> dict[str, Any]:
    return {
        "counted": sum(counts.total.values()),
        "is_complete": counts.is_complete,
        "effects": _by_effect(counts.total),
        "fields": {_WORDS[name]: _facet(values) for name, values in counts.by_field.items()},
    }


def _facet(values: Any) -> dict[str, Any]:
    ranked = sorted(values.items(), key=lambda each: (-sum(each[1].values()), each[0]))
    return {
        "values": [
            {"value": value, "count": sum(effects.values()), "effects": _by_effect(effects)} for value, effects in ranked[:MAX_FACET_VALUES]
        ],
        "others": max(0, len(ranked) - MAX_FACET_VALUES),
    }


def _by_effect(effects: Any) -> dict[str, int]:
    return {effect or "none": count for effect, count in sorted(effects.items(), key=lambda each: each[0] or "")}


def _read_position(place: Any) -> int | None:
    return place if type(place) is int and 0 <= place < 2**63 else None
