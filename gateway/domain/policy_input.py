"""What a policy sees: the input document of one call, its model (the published JSON Schema) and its fast builder."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.call import CallCount, Facts
from gateway.domain.catalogue import AgentGrant, Replay, Risk, SubjectGrant, Tool, Workflow
from gateway.domain.principal import Principal

HISTORY_LIMIT = 20
"""Entries of `run.history`: a policy that compares all pairs stays far below its time limit."""

Time = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$")]
"""RFC 3339 in UTC, written with Z, at most microseconds."""


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentInput(_Closed):
    """The authenticated service that proposes the call."""

    name: str
    permissions: list[str]


class SubjectInput(_Closed):
    """On whose behalf it acts; `attributes` as the bundle declares them."""

    name: str
    permissions: list[str]
    attributes: dict[str, Any]


class ToolInput(_Closed):
    """The tool as its bundle declares it."""

    name: str
    risk: Risk
    replay: Replay
    permissions: list[str]


class WorkflowInput(_Closed):
    """What the agent is doing."""

    name: str
    max_risk: Risk


class PastCallInput(_Closed):
    """One earlier call of the run. `status` as in results."""

    tool: str
    status: str
    reason_code: str | None
    at: Time


class RunInput(_Closed):
    """The conversation so far; `history` newest last."""

    id: str
    calls: int
    failures: int
    history: Annotated[list[PastCallInput], Field(max_length=HISTORY_LIMIT)]


class CallCountInput(_Closed):
    """How often calls were made that may have had an effect, and how the last of them ended."""

    count: int
    last_at: Time | None
    last_status: str | None


class RecentInput(_Closed):
    """Earlier calls of the same subject: with equal arguments, and of the same tool at all."""

    same_call: CallCountInput
    same_tool: CallCountInput


class ApprovalInput(_Closed):
    """The approval that the call names. Only `valid` says that a person agreed to exactly this call and that it still holds."""

    id: str
    state: str
    rule: str
    valid: bool
    expires_at: Time


class PolicyInput(_Closed):
    """The input of ``data.gateway.decision``."""

    agent: AgentInput
    subject: SubjectInput
    tool: ToolInput
    args: dict[str, Any]
    """Checked against the tool's schema; integral floats are integers."""
    cost: dict[str, int]
    """Unit -> millionths of it, rounded up."""
    workflow: WorkflowInput
    run: RunInput
    recent: RecentInput
    approval: ApprovalInput | None
    context: dict[str, Any]
    """Checked against the workflow's schema."""
    now: Time
    """The only time that a policy gets."""


def write_input_schema() -> str:
    """The JSON Schema (2020-12) of the input, as ``docs/policy-input.schema.json`` publishes it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | PolicyInput.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def policy_document(
    *,
    principal: Principal,
    tool: Tool,
    args: Mapping[str, Any],
    costs: Mapping[str, int],
    workflow: Workflow,
    agent: AgentGrant,
    subject: SubjectGrant,
    run_id: str,
    facts: Facts,
    approval_is_valid: bool,
    context: Mapping[str, Any],
    now: datetime,
) -> bytes:
    """The input document of one call as JSON, equal to what `PolicyInput` would write; built plainly, for speed.

    `approval_is_valid`: the ledger's approval is granted, unused, unexpired and bound to this call's effect hash.
    """
    approval = facts.approval
    document = {
        "agent": {"name": principal.agent, "permissions": sorted(agent.permissions)},
        "subject": {"name": principal.subject, "permissions": sorted(subject.permissions), "attributes": subject.attributes},
        "tool": {"name": tool.name, "risk": tool.declaration.risk, "replay": tool.replay, "permissions": tool.declaration.permissions},
        "args": args,
        "cost": costs,
        "workflow": {"name": workflow.name, "max_risk": workflow.declaration.max_risk},
        "run": {
            "id": run_id,
            "calls": facts.run_calls,
            "failures": facts.run_failures,
            "history": [
                {"tool": tool, "status": status, "reason_code": reason_code, "at": _utc(at)}
                for tool, status, reason_code, at in facts.history[-HISTORY_LIMIT:]
            ],
        },
        "recent": {"same_call": _count(facts.same_call), "same_tool": _count(facts.same_tool)},
        "approval": None
        if approval is None
        else {
            "id": approval.approval_id,
            "state": approval.state,
            "rule": approval.rule,
            "valid": approval_is_valid,
            "expires_at": _utc(approval.expires_at),
        },
        "context": context,
        "now": _utc(now),
    }
    return orjson.dumps(document, default=dict, option=orjson.OPT_UTC_Z)  # `default`: mappings that are no dicts


def _count(found: CallCount) -> dict[str, Any]:
    return {"count": found.count, "last_at": found.last_at and _utc(found.last_at), "last_status": found.last_status}


def _utc(at: datetime) -> datetime:
    """The same moment in UTC, which is written with Z."""
    return at if at.tzinfo is UTC else at.astimezone(UTC)


CANARY = orjson.dumps(
    {
        "agent": {"name": "canary", "permissions": []},
        "subject": {"name": "canary", "permissions": [], "attributes": {}},
        "tool": {"name": "canary", "risk": "read", "replay": "safe", "permissions": []},
        "args": {},
        "cost": {},
        "workflow": {"name": "canary", "max_risk": "read"},
        "run": {"id": "canary", "calls": 0, "failures": 0, "history": []},
        "recent": {name: {"count": 0, "last_at": None, "last_status": None} for name in ("same_call", "same_tool")},
        "approval": None,
        "context": {},
        "now": "1970-01-01T00:00:00Z",
    }
)
"""A call of nobody: every engine must have a defined decision on it before its revision becomes active."""
