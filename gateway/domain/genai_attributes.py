"""A record in the attributes of OpenTelemetry's conventions for generative AI (span ``execute_tool``; still in development there).

What the conventions have no name for stands under ``gateway.``. Arguments and results are never among the attributes.
"""

from collections.abc import Mapping
from typing import Any

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"

_ATTRIBUTES = {
    "tool": "gen_ai.tool.name",
    "call_id": "gen_ai.tool.call.id",
    "agent": "gen_ai.agent.name",
    "run_id": "gen_ai.conversation.id",
    "subject": "enduser.id",
    "decision_id": "gateway.decision_id",
    "kind": "gateway.record.kind",
    "position": "gateway.record.position",
    "tenant": "gateway.tenant",
    "workflow": "gateway.workflow",
    "risk": "gateway.tool.risk",
    "effect": "gateway.effect",
    "reason_code": "gateway.reason_code",
    "stage": "gateway.stage",
    "policy": "gateway.policy",
    "revision": "gateway.revision",
    "status": "gateway.status",
    "approval_id": "gateway.approval_id",
}
_NOT_ERRORS = (None, "ok", "no_match", "suppressed", "confirmation_required", "in_progress", "pending_client")


def genai_attributes(record: Mapping[str, Any]) -> dict[str, str | int]:
    """The attributes; what a record does not say is left out. Reason codes are a bounded list, so that they fit ``error.type``."""
    attributes: dict[str, str | int] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
    attributes |= {attribute: record[name] for name, attribute in _ATTRIBUTES.items() if record[name] is not None}
    if record["status"] not in _NOT_ERRORS and record["reason_code"] is not None:
        attributes["error.type"] = record["reason_code"]
    return attributes


def genai_event(record: Mapping[str, Any]) -> dict[str, Any]:
    """One record as an event: name, time (RFC 3339) and attributes, with the trace that it belongs to."""
    name = f"execute_tool {record['tool']}" if record["tool"] else f"gateway {record['kind']}"
    event: dict[str, Any] = {"name": name, "timestamp": record["at"], "schema_url": SCHEMA_URL, "attributes": genai_attributes(record)}
    if record["trace_id"]:
        event["trace_id"] = record["trace_id"]
    return event
