"""Agents' routes for runs: start one and follow it, look at it, go on with it, cancel it."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel

from gateway.api.calls import why_no_tools
from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.envelope import RunRequest, read_run_request
from gateway.api.problems import Problem, ProblemError, json_response
from gateway.api.services import CALLER, SERVICES, Services
from gateway.api.shapes import read_timed_place
from gateway.api.sse import read_last_event_id, stream_run
from gateway.domain.authority import find_scope
from gateway.domain.decision import Overloaded
from gateway.domain.identity import transport_key
from gateway.domain.reasons import ReasonCode
from gateway.domain.runs import Bounds, NewRun, PlainRun, RunEnd, RunKey, RunKeyReused, RunRow, RunState

_RUN_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Run(BaseModel):
    """A run. Fields that are null belong to runs whose loop a gateway owns; every other run is known by its calls only."""

    run_id: str
    state: str
    """``running answered failed cancelled``; ``open`` or ``cancelled`` for a run whose loop its agent owns."""
    workflow: str | None
    on_behalf_of: str | None
    calls: int
    """Calls that were admitted."""
    failures: int
    is_cancelled: bool
    model: str | None = None
    reason_code: str | None = None
    message: str | None = None
    is_resumable: bool = False
    answer: str | None = None
    rounds: int | None = None
    model_calls: int | None = None
    tokens: int | None = None
    last_event_id: int | None = None
    started_at: datetime | None = None
    ends_by: datetime | None = None
    finished_at: datetime | None = None


class RunItem(BaseModel):
    """A run in a list."""

    run_id: str
    state: RunState
    workflow: str
    on_behalf_of: str
    model: str
    reason_code: str | None
    rounds: int
    tokens: int
    started_at: datetime
    finished_at: datetime | None


class RunPage(BaseModel):
    """One page of an agent's runs whose loop a gateway owns, newest first."""

    items: list[RunItem]
    next_cursor: str | None


async def post_run(request: web.Request) -> web.StreamResponse:
    """Start a run and stream its events until its end. The same Idempotency-Key streams the same run."""
    body, key = await read_run_request(request)
    services, caller = request.app[SERVICES], request[CALLER]
    runs, new = services.runs, _new_run(request, body, key)
    if not runs.has_model:
        raise Problem(503, "MODEL_NOT_CONFIGURED", "This gateway has no model. An operator sets GEMINI_API_KEY.")
    try:
        started = await runs.start(new)
    except RunKeyReused:
        raise Problem(409, "IDEMPOTENCY_KEY_REUSED", "This key started another run. Use a new key.") from None
    except Overloaded:
        raise _overloaded() from None
    return await stream_run(request, services.runs, RunKey(tenant=caller.tenant, agent=caller.name, run_id=started.run_id), after=0)


async def list_runs(request: web.Request) -> web.Response:
    """One page of this agent's runs whose loop a gateway owns, newest first."""
    caller, limit = request[CALLER], read_limit(request)
    text = request.query.get("state")
    if text is not None and text not in list(RunState):
        raise Problem(400, "PARAMETER_INVALID", f"`state` is one of {', '.join(RunState)}.")
    state = RunState(text) if text is not None else None
    of_list = ("runs", caller.tenant, caller.name, state)
    before = read_cursor(request, of_list, read_timed_place)
    found = await request.app[SERVICES].runs.find(caller.tenant, caller.name, state=state, before=before, limit=limit + 1)
    items = [_item(row) for row in found[:limit]]
    last = items[-1] if len(found) > limit else None
    following = write_cursor(request, of_list, [last.started_at.isoformat(), last.run_id]) if last else None
    return json_response(RunPage(items=items, next_cursor=following).model_dump(mode="json"))


async def get_run(request: web.Request) -> web.Response:
    """A run as it stands."""
    return json_response(await _describe(request, _key(request)))


async def get_run_events(request: web.Request) -> web.StreamResponse:
    """The events of a run after Last-Event-ID, as they come, until its end."""
    key, after = _key(request), read_last_event_id(request)
    await _known(request, key)
    return await stream_run(request, request.app[SERVICES].runs, key, after=after)


async def resume_run(request: web.Request) -> web.StreamResponse:
    """Go on with a run that ended resumably or that nobody drives, and stream its events after Last-Event-ID."""
    key, after = _key(request), read_last_event_id(request)
    runs = request.app[SERVICES].runs
    row = await _known(request, key)
    is_over = row.state is not RunState.RUNNING and not (row.end and RunEnd(row.end).is_resumable)
    if is_over:
        raise Problem(409, "RUN_ENDED", f"This run has ended for good ({row.end}). Start a new one.")
    if not runs.has_model:
        raise Problem(503, "MODEL_NOT_CONFIGURED", "This gateway has no model. An operator sets GEMINI_API_KEY.")
    try:
        await runs.resume(key)
    except Overloaded:
        raise _overloaded() from None
    return await stream_run(request, runs, key, after=after)


async def cancel_run(request: web.Request) -> web.Response:
    """Cancel a run of this agent, whoever owns its loop: no further call of it is admitted. Safe to repeat."""
    key = _key(request)
    await request.app[SERVICES].runs.cancel(key)
    return json_response(await _describe(request, key))


def _new_run(request: web.Request, body: RunRequest, key: str | None) -> NewRun:
    services, caller = request.app[SERVICES], request[CALLER]
    settings, context = services.run_settings, body.context or {}
    model = body.model or settings.model
    if body.model is not None and settings.models is not None and body.model not in settings.models:
        raise Problem(403, "MODEL_NOT_ALLOWED", f"`model` is one of: {', '.join(settings.models)}.")
    return NewRun(
        key=RunKey(tenant=caller.tenant, agent=caller.name, run_id=str(services.new_id())),
        workflow=body.workflow,
        subject=_check_authority(services, request, body),
        model=model,
        prompt=body.prompt,
        context=context,
        bounds=Bounds(rounds=settings.rounds, model_calls=settings.model_calls, tokens=settings.tokens, duration_s=settings.duration_s),
        start_key=transport_key(key) if key is not None else None,
        request_digest=hashlib.sha256(orjson.dumps(body.model_dump(), option=orjson.OPT_SORT_KEYS)).digest(),
    )


def _check_authority(services: Services, request: web.Request, body: RunRequest) -> str:
    """The subject of a run that this agent may start; each call of it is checked again. Raises Problem."""
    caller = request[CALLER]
    in_force = services.revisions.current(caller.tenant)
    if in_force is None:
        raise Problem(503, "NO_REVISION", "No bundle is active for this tenant.", headers={"Retry-After": "5"})
    scope = find_scope(in_force.bundle, caller.name, body.workflow, body.on_behalf_of, controls=in_force.controls)
    if isinstance(scope, ReasonCode):
        raise why_no_tools(scope)
    if found := scope.workflow.context.errors(dict(body.context or {})):
        errors = [ProblemError(pointer=f"/context{error.path}", message=error.message) for error in found[:20]]
        raise Problem(400, "CONTEXT_INVALID", "The context does not fit this workflow; see `errors`.", errors=errors)
    return scope.subject_name


async def _known(request: web.Request, key: RunKey) -> RunRow:
    row = await request.app[SERVICES].runs.get(key)
    if row is None:
        raise Problem(404, "NOT_FOUND", "There is no such run whose loop a gateway owns.")
    return row


async def _describe(request: web.Request, key: RunKey) -> dict[str, Any]:
    runs = request.app[SERVICES].runs
    row, plain = await runs.get(key), await runs.get_plain(key)
    if row is None and plain is None:
        raise Problem(404, "NOT_FOUND", "There is no such run of this agent.")
    return _run(key, row, plain).model_dump(mode="json")


def _run(key: RunKey, row: RunRow | None, plain: PlainRun | None) -> Run:
    is_cancelled = plain is not None and plain.cancelled_at is not None
    calls, failures = (plain.calls, plain.failures) if plain is not None else (0, 0)
    known: dict[str, Any] = {"run_id": key.run_id, "calls": calls, "failures": failures, "is_cancelled": is_cancelled}
    if row is None:
        assert plain is not None  # noqa: S101 - one of the two is there
        return Run(state="cancelled" if is_cancelled else "open", workflow=plain.workflow, on_behalf_of=plain.subject, **known)
    end = RunEnd(row.end) if row.end else None
    return Run(
        state=row.state.value,
        workflow=row.workflow,
        on_behalf_of=row.subject,
        model=row.model,
        reason_code=row.end,
        message=end.message if end else None,
        is_resumable=end.is_resumable if end else False,
        answer=row.answer,
        rounds=row.rounds,
        model_calls=row.model_calls,
        tokens=row.tokens,
        last_event_id=row.last_event_id,
        started_at=row.started_at.astimezone(UTC),
        ends_by=row.ends_by.astimezone(UTC),
        finished_at=row.finished_at.astimezone(UTC) if row.finished_at else None,
        **known,
    )


def _item(row: RunRow) -> RunItem:
    return RunItem(
        run_id=row.key.run_id,
        state=row.state,
        workflow=row.workflow,
        on_behalf_of=row.subject,
        model=row.model,
        reason_code=row.end,
        rounds=row.rounds,
        tokens=row.tokens,
        started_at=row.started_at.astimezone(UTC),
        finished_at=row.finished_at.astimezone(UTC) if row.finished_at else None,
    )


def _key(request: web.Request) -> RunKey:
    run_id = request.match_info["run_id"]
    if not _RUN_ID.fullmatch(run_id):
        raise Problem(404, "NOT_FOUND", "That is no run id.")
    caller = request[CALLER]
    return RunKey(tenant=caller.tenant, agent=caller.name, run_id=run_id)


def _overloaded() -> Problem:
    return Problem(429, "OVERLOADED", "This gateway drives as many runs as it may. Come back later.", headers={"Retry-After": "5"})
