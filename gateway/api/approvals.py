"""Approvers' routes: what waits for a person, exactly what would run, and the person's answer."""

from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, Any
from uuid import UUID

from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from gateway.api.calls import read_id, read_in_force
from gateway.api.cursors import read_cursor, read_limit, write_cursor
from gateway.api.envelope import read_plain_request
from gateway.api.operations import Amount, write_amount
from gateway.api.problems import Problem, ProblemError, json_response
from gateway.api.services import CALLER, SERVICES
from gateway.api.shapes import Body, Time, read_id_place
from gateway.api.strict_json import defects_in
from gateway.domain.approvals import PEOPLE_NEEDED, Approval, ApprovalState, Objection, PersonsAnswer, Verdict, find_objection
from gateway.domain.canonical import canonical_json, integral_floats_as_integers
from gateway.domain.catalogue import Bundle
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.ports import Suggestion
from gateway.domain.principal import Caller
from gateway.domain.record import keyed_digest
from gateway.domain.visible import Mark, marks_in

LONGEST_COMMENT = 1_000


_OBJECTIONS = {
    Objection.AGENT_MAY_NOT_APPROVE: "A credential of an agent never answers approvals.",
    Objection.NOT_THE_SUBJECT: "Only the person on whose behalf the agent acts may answer this.",
    Objection.SELF_APPROVAL: "Somebody else than the person on whose behalf the agent acts must answer this.",
    Objection.PERMISSION_MISSING: "You do not have the permission that this approval needs.",
}


def _read_comment(text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise PydanticCustomError("comment_not_printable", "must be one line of printable characters")
    return text.strip()


Comment = Annotated[
    str,
    Field(max_length=LONGEST_COMMENT, description="One line of printable characters. Of a no, the agent and its model are told it."),
    AfterValidator(_read_comment),
]


class Approve(Body):
    """Body of ``POST /v1/approvals/{approval_id}/approve``; may be left out."""

    comment: Comment | None = None


class Deny(Body):
    """Body of ``POST /v1/approvals/{approval_id}/deny``."""

    comment: Comment
    suggested_args: Annotated[
        dict[str, Any] | None, Field(description="Arguments that you would rather see, in the tool's schema; the agent is told them.")
    ] = None


class Requester(BaseModel):
    """Who asks: the agent, on whose behalf, in which workflow and run."""

    agent: str
    on_behalf_of: str
    workflow: str
    run_id: str


class Reason(BaseModel):
    """Why a person must agree: the code of the policy that asked, and what it says."""

    code: str
    message: str | None
    policy: str | None


class MarkItem(BaseModel):
    """A text among arguments and context that is long or holds characters which do not show; `shown` has them as escapes."""

    model_config = ConfigDict(from_attributes=True)

    pointer: str
    kinds: list[str]
    length: int
    shown: str


class AnswerItem(BaseModel):
    """What one person said."""

    model_config = ConfigDict(from_attributes=True)

    person: str
    answer: Verdict
    comment: str | None
    at: Time


class ApprovalItem(BaseModel):
    """A request to a person about one exact call. `arguments` are those that would run; redacted ones are keyed digests."""

    approval_id: UUID
    state: ApprovalState
    summary: str
    tool: str
    title: str
    risk: str
    requester: Requester
    reason: Reason
    arguments: dict[str, Any]
    redacted: list[str]
    """JSON pointers into the arguments."""
    context: dict[str, Any]
    marked: list[MarkItem]
    cost: dict[str, Amount]
    rule: str
    permission: str
    people_needed: int
    answers: list[AnswerItem]
    may_answer: bool
    """Whether you may, now."""
    requested_at: Time
    expires_at: Time
    """Pending: when silence becomes a no. Granted: when the yes is over. Denied: until when the no holds in its run."""
    suggested_args: dict[str, Any] | None
    consumed_by: UUID | None
    """The decision of the call that used the grant."""
    tool_digest: str
    revision: str
    effect_hash: str

    @classmethod
    def of(cls, approval: Approval, bundle: Bundle, caller: Caller) -> "ApprovalItem":
        """The item that `caller` sees."""
        shown = approval.request
        return cls(
            approval_id=approval.approval_id,
            state=approval.now,
            summary=approval.summary,
            tool=approval.tool,
            title=shown["title"],
            risk=shown["risk"],
            requester=Requester(agent=approval.agent, on_behalf_of=approval.subject, workflow=approval.workflow, run_id=approval.run_id),
            reason=_reason(shown, bundle),
            arguments=shown["arguments"],
            redacted=shown["redacted"],
            context=shown["context"],
            marked=[_mark_item(mark) for mark in marks_in({"arguments": shown["arguments"], "context": shown["context"]})],
            cost={unit: write_amount(micro) for unit, micro in shown["cost"].items()},
            rule=approval.rule,
            permission=approval.permission,
            people_needed=PEOPLE_NEEDED[approval.rule],
            answers=[AnswerItem.model_validate(answer) for answer in approval.answers],
            may_answer=_may_answer(approval, bundle, caller),
            requested_at=approval.requested_at,
            expires_at=approval.expires_at,
            suggested_args=dict(approval.suggested_args) if approval.suggested_args is not None else None,
            consumed_by=approval.consumed_by,
            tool_digest=approval.tool_digest,
            revision=approval.revision,
            effect_hash=f"sha256:{approval.effect_hash.hex()}",
        )


class ApprovalPage(BaseModel):
    """One page of approvals, oldest first."""

    items: list[ApprovalItem]
    next_cursor: str | None


async def list_approvals(request: web.Request) -> web.Response:
    """One page of the approvals that the caller may answer or could have, oldest first."""
    caller, limit, state = request[CALLER], read_limit(request), _read_state(request)
    bundle = read_in_force(request, caller).bundle
    person = bundle.persons.get(caller.name)
    of_list = ("approvals", caller.name, state.value)
    found = await request.app[SERVICES].approvals.page(
        caller.tenant,
        state,
        permissions=person.permissions if person else (),
        person=caller.name,
        after=read_cursor(request, of_list, read_id_place),
        limit=limit + 1,
    )
    items = [ApprovalItem.of(approval, bundle, caller) for approval in found[:limit]]
    following = write_cursor(request, of_list, str(items[-1].approval_id)) if len(found) > limit else None
    return json_response(ApprovalPage(items=items, next_cursor=following).model_dump(mode="json"))


async def get_approval(request: web.Request) -> web.Response:
    """One approval with everything that the person who answers must see."""
    caller = request[CALLER]
    approval = await _find(request)
    bundle = read_in_force(request, caller).bundle
    objection = find_objection(bundle, caller, approval)
    if objection not in (None, Objection.SELF_APPROVAL):
        raise Problem(403, objection.value, _OBJECTIONS[objection])
    return json_response(ApprovalItem.of(approval, bundle, caller).model_dump(mode="json"))


async def approve_call(request: web.Request) -> web.Response:
    """Agree to exactly the call that the approval shows."""
    body = await read_plain_request(request, Approve) if request.body_exists else Approve()
    return await _answer(request, "approve", body.comment, None)


async def deny_call(request: web.Request) -> web.Response:
    """Say no, and tell the agent why and perhaps what instead."""
    body = await read_plain_request(request, Deny)
    return await _answer(request, "deny", body.comment, body.suggested_args)


async def note_attempt(request: web.Request, caller: Caller) -> None:
    """A credential without the role tried to answer: that is recorded, where there is such an approval."""
    verdict: Verdict = "approve" if request.path.endswith("/approve") else "deny"
    services = request.app[SERVICES]
    approval_id = read_id(request.match_info["approval_id"])
    await services.approvals.note_refused(
        caller.tenant, approval_id, verdict, by=caller.name, objection="ROLE_REQUIRED", record_id=services.new_id()
    )


async def _answer(request: web.Request, verdict: Verdict, comment: str | None, suggested: dict[str, Any] | None) -> web.Response:
    services, caller = request.app[SERVICES], request[CALLER]
    approval = await _find(request)
    bundle = read_in_force(request, caller).bundle
    if objection := find_objection(bundle, caller, approval):
        await services.approvals.note_refused(
            caller.tenant, approval.approval_id, verdict, by=caller.name, objection=objection.value, record_id=services.new_id()
        )
        raise Problem(403, objection.value, _OBJECTIONS[objection])
    if verdict == "approve":
        _check_tool(bundle, approval)
    suggestion = _read_suggestion(request, approval, suggested)
    try:
        is_counted = await services.approvals.answer(
            caller.tenant,
            approval.approval_id,
            verdict,
            person=caller.name,
            comment=comment,
            suggestion=suggestion,
            record_id=services.new_id(),
        )
    except LedgerUnavailable:
        detail = "It is not known whether your answer was written. Look at the approval before you repeat it."
        raise Problem(503, "LEDGER_UNAVAILABLE", detail, headers={"Retry-After": "1"}) from None
    after = await _find(request)
    if not is_counted:
        raise _too_late(after)
    return json_response(ApprovalItem.of(after, bundle, caller).model_dump(mode="json"))


async def _find(request: web.Request) -> Approval:
    approval_id = read_id(request.match_info["approval_id"])
    approval = await request.app[SERVICES].approvals.find(request[CALLER].tenant, approval_id)
    if approval is None:
        raise Problem(404, "NOT_FOUND", "There is no such approval.")
    return approval


def _check_tool(bundle: Bundle, approval: Approval) -> None:
    tool = bundle.tools.get(approval.tool)
    if tool is None or tool.digest != approval.tool_digest:
        raise Problem(409, "TOOL_CHANGED", "The tool is no longer the one that was asked about; a new call asks anew.")


def _read_suggestion(request: web.Request, approval: Approval, suggested: dict[str, Any] | None) -> Suggestion | None:
    """The suggested arguments, normalised and in the schema of the very tool that was asked about. Raises Problem."""
    if suggested is None:
        return None
    found = read_in_force(request, request[CALLER])
    _check_tool(found.bundle, approval)
    args: dict[str, Any] = integral_floats_as_integers(suggested)
    errors = defects_in(args) or found.bundle.tools[approval.tool].arguments.errors(args)
    if errors:
        wrong = [ProblemError(pointer=f"/suggested_args{error.path}", message=error.message) for error in errors[:20]]
        raise Problem(400, "SUGGESTED_ARGS_INVALID", "The suggested arguments do not fit the tool's schema; see `errors`.", errors=wrong)
    return Suggestion(args=args, digest=keyed_digest(found.digest_key, canonical_json(args)))


def _too_late(approval: Approval) -> Problem:
    match approval.now:
        case ApprovalState.PENDING:
            return Problem(409, "ALREADY_ANSWERED", "You have answered already; a second person must agree.")
        case ApprovalState.EXPIRED:
            return Problem(409, "APPROVAL_EXPIRED", "Nobody answered in time; the agent's next call asks anew.")
        case state:
            last: PersonsAnswer = approval.answers[-1]
            at = last.at.astimezone(UTC).isoformat(timespec="seconds")
            return Problem(409, "APPROVAL_DECIDED", f"{last.person} has answered already ({last.answer}, {at}); it is {state.value}.")


def _may_answer(approval: Approval, bundle: Bundle, caller: Caller) -> bool:
    is_first = all(answer.person != caller.name for answer in approval.answers)
    return approval.now is ApprovalState.PENDING and is_first and find_objection(bundle, caller, approval) is None


def _reason(shown: Mapping[str, Any], bundle: Bundle) -> Reason:
    code: str = shown["reason_code"]
    return Reason(code=code, message=bundle.message(code) if bundle.knows(code) else None, policy=shown["policy"])


def _mark_item(mark: Mark) -> MarkItem:
    return MarkItem(pointer=mark.pointer, kinds=list(mark.kinds), length=mark.length, shown=mark.shown)


def _read_state(request: web.Request) -> ApprovalState:
    try:
        return ApprovalState(request.query.get("state", ApprovalState.PENDING))
    except ValueError:
        raise Problem(400, "PARAMETER_INVALID", f"`state` is one of: {', '.join(ApprovalState)}.") from None
