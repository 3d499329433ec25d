"""The result of a call that the agent's client performed: posted once, by the same agent."""

from typing import Annotated, Any, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field

from gateway.api.calls import read_id
from gateway.api.envelope import read_plain_request
from gateway.api.problems import Problem, json_response
from gateway.api.services import CALLER, SERVICES, Services
from gateway.api.shapes import Body
from gateway.domain.answers import outcome_result
from gateway.domain.call import CallNow
from gateway.domain.catalogue import Bundle, Risk, Tool
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.drafts import report_draft
from gateway.domain.outcome import CallState
from gateway.domain.principal import Caller
from gateway.domain.reasons import ReasonCode
from gateway.executors.client import read_report


class Report(Body):
    """Body of ``POST /v1/executions/{execution_id}/result``: what came of it at the client."""

    status: Annotated[
        Literal["ok", "no_match", "failed"], Field(description="It was done; it found nothing; it did not work and did nothing.")
    ]
    data: Annotated[Any, Field(description="With `ok`: any JSON value; checked against the tool's `result.output`.")] = None


async def post_result(request: web.Request) -> web.Response:
    """Book what a client says, and answer the call as it stands now."""
    services, caller = request.app[SERVICES], request[CALLER]
    report = await read_plain_request(request, Report)
    decision_id = read_id(request.match_info["execution_id"])
    now, bundle, tool = await _find(services, caller, decision_id)
    record_id = services.new_id()
    outcome = read_report(tool, now.record["obligations"], report.status, report.data)
    result = outcome_result(bundle, outcome)
    draft = report_draft(now.record, record_id=record_id, outcome=outcome, status=result["status"], tool=tool)
    try:
        is_read = tool.declaration.risk is Risk.READ
        is_counted = await services.ledger.report(decision_id, outcome, draft, result, is_read=is_read)
    except LedgerUnavailable:
        detail = "It is not known whether this was written. Look at the call before you post it again."
        raise Problem(503, "LEDGER_UNAVAILABLE", detail, headers={"Retry-After": "1"}) from None
    if not is_counted:
        raise await _too_late(services, caller, decision_id)
    return json_response({"decision_id": str(decision_id), **(now.told or {}), "result": result, "replayed": False})


async def _find(services: Services, caller: Caller, decision_id: UUID) -> tuple[CallNow, Bundle, Tool]:
    """The caller's own call that was handed out, with its tool as of the revision that admitted it. Raises Problem."""
    now = await services.ledger.get_call(caller.tenant, caller.name, decision_id)
    bundle = await services.revisions.bundle_of(caller.tenant, now.record["revision"]) if now is not None and now.told is not None else None
    tool = bundle.tools.get(now.record["tool"]) if now is not None and bundle is not None else None
    # Where a tool runs is a fact of its declaration: what the gateway executes has no result to post.
    if now is None or bundle is None or tool is None or tool.declaration.execute.client is None:
        raise Problem(404, "NOT_FOUND", "There is no such execution of this agent.")
    return now, bundle, tool


async def _too_late(services: Services, caller: Caller, decision_id: UUID) -> Problem:
    now = await services.ledger.get_call(caller.tenant, caller.name, decision_id)
    is_silent = now is not None and now.result is not None and now.result["reason_code"] == ReasonCode.CLIENT_SILENT
    if now is None or now.state is CallState.PENDING_CLIENT or is_silent:
        return Problem(409, "EXECUTION_EXPIRED", "The time for this result is over.")
    return Problem(409, "ALREADY_POSTED", f"This call has ended already; it is {now.state.value}.")
