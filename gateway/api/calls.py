"""Agents' routes: govern a call or a round, look at a call, see the tools, ask what would happen."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from aiohttp import web

from gateway.api.envelope import CallRequest, EvaluationRequest, RoundRequest, Setting, read_request
from gateway.api.problems import Problem, json_response, ledger_unavailable
from gateway.api.services import CALLER, SERVICES
from gateway.api.turns import read_turn_request
from gateway.dialects.registry import FORMATS
from gateway.domain.answers import as_it_stands, refusal_details
from gateway.domain.authority import find_scope, may_see, visible_tools
from gateway.domain.call import Proposed, ProposedCall
from gateway.domain.decision import GatewayFault
from gateway.domain.in_force import InForce
from gateway.domain.principal import Caller, Role
from gateway.domain.reasons import ReasonCode

LONGEST_WAIT_S = 60
_TO_DEVELOPERS = {
    ReasonCode.WORKFLOW_UNKNOWN: "The active bundle has no such `workflow`.",
    ReasonCode.WORKFLOW_NOT_ALLOWED: "This agent was not granted this `workflow`; principals.yaml says which ones it was.",
    ReasonCode.SUBJECT_REQUIRED: "Say with `on_behalf_of` for which subject the agent acts.",
    ReasonCode.DELEGATION_INVALID: "This agent does not act for this subject; principals.yaml says for whom it does (`act_for`).",
    ReasonCode.AGENT_SUSPENDED: "An operator suspended this agent (`gateway controls list`).",
    ReasonCode.TENANT_FROZEN: "An operator froze this tenant (`gateway controls list`).",
    ReasonCode.SUBJECT_UNKNOWN: "The active bundle has no such subject.",
}
"""Why there are no tools to list; the codes' own sentences speak to a model."""
_POLL_S = 0.25


async def post_call(request: web.Request) -> web.Response:
    """Govern one call."""
    envelope, calls = await read_request(request, CallRequest)
    services = request.app[SERVICES]
    call = _propose(request, envelope, calls[0])
    # Shielded: a client that leaves does not stop what was begun.
    answer = await asyncio.shield(services.tasks.start(services.enforcer.govern(call)))
    if answer["decision_id"] is None:
        raise ledger_unavailable()
    return json_response(answer)


async def post_round(request: web.Request) -> web.Response:
    """Govern all calls of one model turn: given as calls, or with ``dialect`` as the turn that a vendor's API answered."""
    if (dialect := request.query.get("dialect")) is not None:
        native = await read_turn_request(request, dialect)
        return json_response(native.answer(await _govern_round(request, native.envelope, native.calls)))
    envelope, posted = await read_request(request, RoundRequest)
    return json_response({"results": await _govern_round(request, envelope, posted)})


async def _govern_round(request: web.Request, envelope: Setting, posted: Sequence[ProposedCall]) -> list[dict[str, Any]]:
    services = request.app[SERVICES]
    round_id = services.new_id()
    calls = [_propose(request, envelope, call, round_=(round_id, position)) for position, call in enumerate(posted)]
    answers = await asyncio.shield(services.tasks.start(services.enforcer.govern_round(calls)))
    if answers and all(answer["decision_id"] is None for answer in answers):
        raise ledger_unavailable()
    return answers


async def get_call(request: web.Request) -> web.Response:
    """A call as it stands now; with ``wait`` (seconds, at most 60) after it ended or a person answered, if that comes first."""
    services, caller = request.app[SERVICES], request[CALLER]
    decision_id = read_id(request.match_info["decision_id"])
    patience = _read_wait(request.query.get("wait", "0"))
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        now = await services.ledger.get_call(caller.tenant, caller.name, decision_id)
        if now is None:
            raise Problem(404, "NOT_FOUND", "There is no such call of this agent.")
        if now.is_over or asyncio.get_running_loop().time() >= deadline:
            in_force, record = read_in_force(request, caller), now.record
            is_permitted = may_see(
                in_force.bundle, caller.name, record["workflow"], record["subject"], record["tool"], controls=in_force.controls
            )
            return json_response(as_it_stands(in_force.bundle, now, is_permitted=is_permitted))
        await asyncio.sleep(_POLL_S)


async def post_evaluation(request: web.Request) -> web.Response:
    """What would be answered, without doing or writing anything: the code for agents, the stages too for authors."""
    envelope, calls = await read_request(request, EvaluationRequest)
    services, caller = request.app[SERVICES], request[CALLER]
    is_author = Role.AUTHOR in caller.roles
    if envelope.agent is not None and not is_author:
        raise Problem(403, "ROLE_REQUIRED", "Only an author may ask about another agent.")
    if envelope.agent is None and Role.AGENT not in caller.roles:
        raise Problem(400, "ENVELOPE_INVALID", "Name the `agent` that would call.")
    asked = Caller(tenant=caller.tenant, name=envelope.agent or caller.name, roles=frozenset({Role.AGENT}))
    call = _propose(request, envelope, calls[0], caller=asked, is_dry_run=True)
    try:
        found = await services.enforcer.evaluate(call)
    except GatewayFault:
        raise ledger_unavailable() from None
    if found.reason_code == ReasonCode.LEDGER_UNAVAILABLE.value:
        raise ledger_unavailable()
    status = call.bundle.status(found.reason_code)
    body: dict[str, Any] = {
        "effect": found.effect.value,
        "reason_code": str(found.reason_code),
        "status": status.value if status else None,
        "revision": call.bundle.revision,
    }
    if is_author:
        body |= {
            "stage": found.stage,
            "policy": found.policy,
            "replayed": found.is_replay,
            "stages": call.trail.document(),
            "details": refusal_details(found.refusal, None) if found.refusal else {},
        }
    return json_response(body)


async def get_tools(request: web.Request) -> web.Response:
    """Declarations of the tools that this agent may call in a workflow for a subject, in the asked format."""
    caller = request[CALLER]
    in_force = read_in_force(request, caller)
    bundle, controls = in_force.bundle, in_force.controls
    workflow = request.query.get("workflow")
    if not workflow:
        raise Problem(400, "PARAMETER_INVALID", "Name the `workflow`.")
    scope = find_scope(bundle, caller.name, workflow, request.query.get("on_behalf_of"), controls=controls)
    if isinstance(scope, ReasonCode):
        raise why_no_tools(scope)
    visible = [tool.declaration for tool in visible_tools(bundle, scope, controls=controls)]
    declare = FORMATS.get(request.query.get("format", "json"))
    if declare is None:
        raise Problem(400, "PARAMETER_INVALID", f"`format` is one of: {', '.join(FORMATS)}.")
    return json_response({"workflow": workflow, "revision": bundle.revision, "tools": declare(visible)})


def why_no_tools(code: ReasonCode) -> Problem:
    """What a developer is told whose agent may not use a workflow for a subject."""
    return Problem(403, code.value, _TO_DEVELOPERS[code])


def read_id(text: str) -> UUID:
    """A decision id from a path; what is no id names nothing."""
    try:
        return UUID(text)
    except ValueError:
        raise Problem(404, "NOT_FOUND", "That is no decision id.") from None


def _read_wait(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) > LONGEST_WAIT_S:
        raise Problem(400, "PARAMETER_INVALID", f"`wait` is a number of seconds from 0 to {LONGEST_WAIT_S}.")
    return int(text)


def read_in_force(request: web.Request, caller: Caller) -> InForce:
    """What is in force for the caller's tenant. Raises Problem."""
    in_force = request.app[SERVICES].revisions.current(caller.tenant)
    if in_force is None:
        raise Problem(503, "NO_REVISION", "No bundle is active for this tenant.", headers={"Retry-After": "5"})
    return in_force


def _propose(
    request: web.Request,
    setting: Setting,
    call: ProposedCall,
    *,
    caller: Caller | None = None,
    round_: tuple[UUID, int] | None = None,
    is_dry_run: bool = False,
) -> Proposed:
    services = request.app[SERVICES]
    caller = caller or request[CALLER]
    in_force = read_in_force(request, caller)
    return Proposed(
        caller=caller,
        bundle=in_force.bundle,
        digest_key=in_force.digest_key,
        epoch=in_force.epoch,
        controls=in_force.controls,
        decision_id=services.new_id(),
        now=services.now(),
        workflow_name=setting.workflow,
        run_id=setting.run_id,
        on_behalf_of=setting.on_behalf_of,
        context=setting.context or {},
        call=call,
        round=round_,
        is_dry_run=is_dry_run,
    )
