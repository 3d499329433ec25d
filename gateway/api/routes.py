"""The one table of routes: method, path, who may use it, handler, and the shapes for the API description."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from gateway.api import (
    approvals,
    bundles,
    calls,
    decisions,
    evidence,
    executions,
    exports,
    health,
    keys,
    opa_bundle,
    operations,
    policy,
    runs,
    tails,
)
from gateway.api.approvals import ApprovalItem, ApprovalPage, Approve, Deny
from gateway.api.bundles import (
    Activate,
    ActiveRevision,
    ControlList,
    Push,
    PushedRevision,
    Restrict,
    Restricted,
    RevisionPage,
    RevisionWithFiles,
)
from gateway.api.envelope import CallRequest, EvaluationRequest, RoundRequest, RunRequest
from gateway.api.evidence import Erase, Erased, LogState, Proof
from gateway.api.executions import Report
from gateway.api.keys import CreateKey, KeyPage, NewKey, Revoked, RevokeKey, RotateKey
from gateway.api.operations import BudgetPage, CallPage, Resolution, Resolve
from gateway.api.runs import Run, RunPage
from gateway.api.sse import EVENT_STREAM
from gateway.api.turns import TurnRequest
from gateway.dialects.registry import DIALECTS, FORMATS
from gateway.domain.approvals import ApprovalState
from gateway.domain.outcome import CallState
from gateway.domain.principal import Caller, Role
from gateway.domain.result import Answer, RoundAnswer
from gateway.domain.runs import RunState
from gateway.domain.search import SEARCH_FIELDS, SEARCH_HELP
from gateway.policy.opa_bundle import CONTENT_TYPE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class EvaluationAnswer(BaseModel):
    """What would be answered. Fields from `stage` on are for authors."""

    effect: str
    reason_code: str
    status: str | None
    revision: str
    stage: str | None = None
    policy: str | None = None
    replayed: bool | None = None
    stages: list[dict[str, Any]] | None = None
    details: dict[str, Any] | None = None


class ToolList(BaseModel):
    """Declarations of tools in the asked format."""

    workflow: str
    revision: str
    tools: list[dict[str, Any]]


class FacetValue(BaseModel):
    """How many of the matching records have a value, in all and by effect."""

    value: str
    count: int
    effects: dict[str, int]


class Facet(BaseModel):
    """The most frequent values of a field, and how many others there are."""

    values: list[FacetValue]
    others: int


class Facets(BaseModel):
    """Counts over all matching records; where not `is_complete`, over the newest of them only."""

    counted: int
    is_complete: bool
    effects: dict[str, int]
    fields: dict[str, Facet]


class RecordPage(BaseModel):
    """One page of records, newest first. A page may be short, even empty, and still have a next one: go on with its cursor."""

    items: list[dict[str, Any]]
    next_cursor: str | None
    facets: Facets | None = None


class Timeline(BaseModel):
    """One page of the records of a run, oldest first."""

    run_id: str
    items: list[dict[str, Any]]
    next_cursor: str | None


class RecordWithLinks(BaseModel):
    """A record, the records linked to it (outcome, replays), and the kinds of payloads that may be revealed."""

    record: dict[str, Any]
    linked: list[dict[str, Any]]
    payloads: list[str]


class Revealed(BaseModel):
    """Redacted payloads by kind, and the record of their being revealed."""

    reveal_id: str
    payloads: dict[str, dict[str, Any]]


class Health(BaseModel):
    """The process answers."""

    status: str
    version: str


class Readiness(BaseModel):
    """Whether calls can be governed, condition by condition."""

    status: str
    checks: dict[str, bool]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A query parameter, as the API description shows it."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    is_required: bool = False


@dataclass(frozen=True, kw_only=True)
class Route:
    """One route. `roles` empty: open to anybody who can reach the port."""

    method: str
    path: str
    handler: Handler
    summary: str
    roles: frozenset[Role] = frozenset()
    body: type[BaseModel] | None = None
    other_body: type[BaseModel] | None = None
    """Another form of the body, which a parameter asks for."""
    answer: type[BaseModel] | None
    """None: bytes of `answer_type`."""
    answer_type: str = "application/json"
    other_answer_types: tuple[str, ...] = ()
    """Of other forms of the answer, which a parameter asks for."""
    parameters: tuple[Parameter, ...] = ()
    other_statuses: tuple[int, ...] = ()
    takes_idempotency_key: bool = False
    when_refused: Callable[[web.Request, Caller], Awaitable[None]] | None = None
    """Told of a known caller without the role, before it is refused."""


APPROVER = frozenset({Role.APPROVER})
AGENT = frozenset({Role.AGENT})
AUDITOR = frozenset({Role.AUDITOR})
AUTHOR = frozenset({Role.AUTHOR})
OPERATOR = frozenset({Role.OPERATOR})

_PAGING = (
    Parameter(name="limit", description="Items a page", schema={"type": "integer", "minimum": 1, "maximum": 200}),
    Parameter(name="cursor", description="next_cursor of the page before"),
)
_SEARCH = (
    Parameter(name="q", description=SEARCH_HELP),
    Parameter(name="after", description="At or after this time; earlier than `before`", schema={"type": "string", "format": "date-time"}),
    Parameter(name="before", description="Before this time", schema={"type": "string", "format": "date-time"}),
)
_POSITION = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}

ROUTES: tuple[Route, ...] = (
    Route(
        method="POST", path="/v1/calls", handler=calls.post_call, roles=AGENT, body=CallRequest, answer=Answer,
        summary="Govern one call", takes_idempotency_key=True, other_statuses=(503,),
    ),
    Route(
        method="POST", path="/v1/rounds", handler=calls.post_round, roles=AGENT, body=RoundRequest, other_body=TurnRequest,
        answer=RoundAnswer, summary="Govern all calls of one model turn", takes_idempotency_key=True, other_statuses=(503,),
        parameters=(
            Parameter(
                name="dialect", description="The body holds a vendor's `turn` in this dialect, and so does the answer",
                schema={"type": "string", "enum": list(DIALECTS)},
            ),
        ),
    ),
    Route(
        method="GET", path="/v1/calls/{decision_id}", handler=calls.get_call, roles=AGENT, answer=Answer,
        summary="A call as it stands now", other_statuses=(404, 503),
        parameters=(Parameter(name="wait", description="Seconds to wait for its end", schema={"type": "integer", "minimum": 0, "maximum": 60}),),
    ),
    Route(
        method="POST", path="/v1/evaluations", handler=calls.post_evaluation, roles=frozenset({Role.AGENT, Role.AUTHOR}),
        body=EvaluationRequest, answer=EvaluationAnswer, summary="What would be answered; nothing is done or written", other_statuses=(503,),
    ),
    Route(
        method="GET", path="/v1/tools", handler=calls.get_tools, roles=AGENT, answer=ToolList, summary="Tools that this principal may call",
        other_statuses=(503,),
        parameters=(
            Parameter(name="workflow", description="The workflow", schema={"type": "string", "minLength": 1}, is_required=True),
            Parameter(name="on_behalf_of", description="The subject"),
            Parameter(name="format", description="Shape of the declarations", schema={"type": "string", "enum": list(FORMATS)}),
        ),
    ),
    Route(
        method="POST", path="/v1/executions/{execution_id}/result", handler=executions.post_result, roles=AGENT, body=Report, answer=Answer,
        summary="What came of a call that the client performed, once", other_statuses=(404, 409, 503),
    ),
    Route(
        method="GET", path="/v1/approvals", handler=approvals.list_approvals, roles=APPROVER, answer=ApprovalPage,
        summary="Approvals in a state that you may answer or could have, oldest first", other_statuses=(503,),
        parameters=(
            Parameter(
                name="state", description="The state",
                schema={"type": "string", "enum": [state.value for state in ApprovalState], "default": ApprovalState.PENDING.value},
            ),
            *_PAGING,
        ),
    ),
    Route(
        method="GET", path="/v1/approvals/{approval_id}", handler=approvals.get_approval, roles=APPROVER, answer=ApprovalItem,
        summary="One approval: exactly what would run, why a person is asked, and by whom", other_statuses=(404, 503),
    ),
    Route(
        method="POST", path="/v1/approvals/{approval_id}/approve", handler=approvals.approve_call, roles=APPROVER, body=Approve,
        answer=ApprovalItem, summary="Agree to exactly this call", other_statuses=(404, 409, 503), when_refused=approvals.note_attempt,
    ),
    Route(
        method="POST", path="/v1/approvals/{approval_id}/deny", handler=approvals.deny_call, roles=APPROVER, body=Deny,
        answer=ApprovalItem, summary="Say no, with a comment and perhaps other arguments", other_statuses=(404, 409, 503),
        when_refused=approvals.note_attempt,
    ),
    Route(
        method="GET", path="/v1/decisions", handler=decisions.list_decisions, roles=AUDITOR, answer=RecordPage, summary="Find records",
        other_statuses=(503,),
        parameters=(
            *_SEARCH,
            Parameter(name="facets", description=f"Count the values of these fields, parted by commas: {', '.join(SEARCH_FIELDS)}"),
            *_PAGING,
        ),
    ),
    Route(
        method="GET", path="/v1/runs/{run_id}/timeline", handler=decisions.get_timeline, roles=AUDITOR, answer=Timeline,
        summary="What happened in a run, oldest first", other_statuses=(404, 503),
        parameters=(Parameter(name="agent", description="The agent whose run it is; otherwise all runs of this name"), *_PAGING),
    ),
    Route(
        method="GET", path="/v1/decisions/export", handler=exports.export_decisions, roles=AUDITOR, answer=None,
        answer_type="application/x-ndjson", other_answer_types=("text/csv",), other_statuses=(429, 503),
        summary="All records of a search, oldest first, as a stream",
        parameters=(
            *_SEARCH,
            Parameter(
                name="format", description="ndjson: the exact stored bytes of each record, one a line; opa: decisions only, as OPA logs them",
                schema={"type": "string", "enum": list(exports.FORMATS), "default": "ndjson"},
            ),
            Parameter(name="from_position", description="From this position on, without a header line", schema=_POSITION),
            Parameter(name="to_position", description="Before this position; otherwise up to the newest record", schema=_POSITION),
        ),
    ),
    Route(
        method="GET", path="/v1/decisions/tail", handler=tails.tail_decisions, roles=AUDITOR, answer=None, answer_type="text/event-stream",
        other_statuses=(429, 503), summary="Records as they arrive; the header Last-Event-ID goes on where a reader was cut off",
        parameters=(*_SEARCH, Parameter(name="from_position", description="From this position on, otherwise from now on", schema=_POSITION)),
    ),
    Route(
        method="POST", path="/v1/decisions/{decision_id}/reveal", handler=decisions.reveal_payloads, roles=AUDITOR, body=decisions.Reveal,
        answer=Revealed, summary="The payloads of a record, for a reason that is recorded", other_statuses=(404, 503),
    ),
    Route(
        method="GET", path="/v1/decisions/{decision_id}", handler=decisions.get_decision, roles=AUDITOR, answer=RecordWithLinks,
        summary="One record with what belongs to it", other_statuses=(404, 503),
    ),
    Route(
        method="GET", path="/v1/decisions/{decision_id}/proof", handler=evidence.get_proof, roles=AUDITOR, answer=Proof,
        summary="The proof that a record stands in the signed log; 409 until a checkpoint covers it", other_statuses=(404, 409, 503),
    ),
    Route(
        method="POST", path="/v1/log/erasures", handler=evidence.post_erasure, roles=OPERATOR, body=Erase, answer=Erased,
        summary="Make what was kept about a subject unreadable for ever", other_statuses=(503,),
    ),
    Route(
        method="GET", path="/v1/log/checkpoint", handler=evidence.get_checkpoint, roles=AUDITOR, answer=LogState,
        summary="The log's last signed checkpoint, its public key, and what is not covered yet", other_statuses=(503,),
        parameters=(
            Parameter(
                name="extends", description="Size of an earlier checkpoint; the answer then proves that the log still begins with it",
                schema={"type": "integer", "minimum": 1},
            ),
        ),
    ),
    Route(
        method="GET", path="/v1/calls", handler=operations.list_calls, roles=OPERATOR, answer=CallPage,
        summary="Admitted calls in a state, oldest first", other_statuses=(503,),
        parameters=(
            Parameter(
                name="state", description="The state",
                schema={"type": "string", "enum": [state.value for state in CallState], "default": CallState.IN_DOUBT.value},
            ),
            *_PAGING,
        ),
    ),
    Route(
        method="POST", path="/v1/calls/{decision_id}/resolve", handler=operations.resolve_call, roles=OPERATOR, body=Resolve,
        answer=Resolution, summary="End the doubt about a call, with evidence", other_statuses=(404, 409, 503),
    ),
    Route(
        method="GET", path="/v1/budgets", handler=operations.list_budgets, roles=OPERATOR, answer=BudgetPage,
        summary="Budgets that were drawn on, and what is left of them", other_statuses=(503,), parameters=_PAGING,
    ),
    Route(
        method="GET", path="/v1/bundles/active.tar.gz", handler=opa_bundle.get_active_bundle, roles=frozenset({Role.ENGINE, Role.AUTHOR}),
        answer=None, answer_type=CONTENT_TYPE, summary="The policies in force, as a bundle for OPA", other_statuses=(304, 404),
    ),
    Route(
        method="POST", path="/v1/policy/impact", handler=policy.study_impact, roles=AUTHOR, body=policy.StudyImpact, answer=None,
        answer_type="application/x-ndjson", summary="What a candidate would have decided on recorded calls, as a stream",
        other_statuses=(422, 429, 503),
    ),
    Route(
        method="POST", path="/v1/bundles", handler=bundles.push, roles=AUTHOR, body=Push, answer=PushedRevision,
        summary="Check a revision and keep it", other_statuses=(422, 503),
    ),
    Route(
        method="GET", path="/v1/bundles", handler=bundles.list_revisions, roles=AUTHOR, answer=RevisionPage,
        summary="Kept revisions, newest first", other_statuses=(503,), parameters=_PAGING,
    ),
    Route(
        method="POST", path="/v1/bundles/active/rollback", handler=bundles.roll_back, roles=AUTHOR, body=Activate, answer=ActiveRevision,
        summary="Put the revision in force again that was so before", other_statuses=(404, 409, 422, 503),
    ),
    Route(
        method="GET", path="/v1/bundles/{revision}", handler=bundles.get_revision, roles=AUTHOR, answer=RevisionWithFiles,
        summary="A kept revision with its files; `active` is the one in force", other_statuses=(404, 503),
    ),
    Route(
        method="POST", path="/v1/bundles/{revision}/activate", handler=bundles.activate, roles=AUTHOR, body=Activate,
        answer=ActiveRevision, summary="Put a kept revision in force on every gateway", other_statuses=(404, 409, 422, 503),
    ),
    Route(
        method="GET", path="/v1/controls", handler=bundles.list_controls, roles=OPERATOR, answer=ControlList,
        summary="What is out of service, and why", other_statuses=(503,),
    ),
    Route(
        method="POST", path="/v1/controls", handler=bundles.post_control, roles=OPERATOR, body=Restrict, answer=Restricted,
        summary="Take an agent, a tool or the tenant out of service, or put it back", other_statuses=(404, 503),
    ),
    Route(
        method="POST", path="/v1/runs", handler=runs.post_run, roles=AGENT, body=RunRequest, answer=None, answer_type=EVENT_STREAM,
        summary="Start a run whose model loop the gateway owns, and stream its events", takes_idempotency_key=True,
        other_statuses=(409, 429, 503),
    ),
    Route(
        method="GET", path="/v1/runs", handler=runs.list_runs, roles=AGENT, answer=RunPage,
        summary="This agent's runs whose loop a gateway owns, newest first", other_statuses=(503,),
        parameters=(
            Parameter(name="state", description="The state", schema={"type": "string", "enum": [state.value for state in RunState]}),
            *_PAGING,
        ),
    ),
    Route(
        method="GET", path="/v1/runs/{run_id}", handler=runs.get_run, roles=AGENT, answer=Run, summary="A run as it stands",
        other_statuses=(404, 503),
    ),
    Route(
        method="GET", path="/v1/runs/{run_id}/events", handler=runs.get_run_events, roles=AGENT, answer=None, answer_type=EVENT_STREAM,
        summary="The events of a run after Last-Event-ID, as they come", other_statuses=(404, 429, 503),
    ),
    Route(
        method="POST", path="/v1/runs/{run_id}/resume", handler=runs.resume_run, roles=AGENT, answer=None, answer_type=EVENT_STREAM,
        summary="Go on with a run, and stream its events after Last-Event-ID", other_statuses=(404, 409, 429, 503),
    ),
    Route(
        method="POST", path="/v1/runs/{run_id}/cancel", handler=runs.cancel_run, roles=AGENT, answer=Run,
        summary="Cancel a run, whoever owns its loop: no further call of it is admitted", other_statuses=(404, 503),
    ),
    Route(
        method="POST", path="/v1/keys", handler=keys.create_key, roles=OPERATOR, body=CreateKey, answer=NewKey,
        summary="Make a key; the answer alone holds it", other_statuses=(503,),
    ),
    Route(
        method="GET", path="/v1/keys", handler=keys.list_keys, roles=OPERATOR, answer=KeyPage,
        summary="Keys, oldest first", other_statuses=(503,), parameters=_PAGING,
    ),
    Route(
        method="POST", path="/v1/keys/{key_id}/rotate", handler=keys.rotate_key, roles=OPERATOR, body=RotateKey, answer=NewKey,
        summary="Make the successor of a key", other_statuses=(404, 409, 503),
    ),
    Route(
        method="POST", path="/v1/keys/{key_id}/revoke", handler=keys.revoke_key, roles=OPERATOR, body=RevokeKey, answer=Revoked,
        summary="End a key, on every gateway", other_statuses=(404, 503),
    ),
    Route(method="GET", path="/healthz", handler=health.get_health, answer=Health, summary="The process answers"),
    Route(method="GET", path="/readyz", handler=health.get_readiness, answer=Readiness, summary="Calls can be governed", other_statuses=(503,)),
)  # fmt: skip
