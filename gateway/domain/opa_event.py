"""A decision as an event of OPA's decision log (open-policy-agent/opa, v1/plugins/logs: EventV1), for services that take those."""

from collections.abc import Mapping
from typing import Any

_ERASED = ("/input/args", "/input/context")
"""What OPA would have logged and this log does not hold beside a record."""


def opa_event(record: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a record of kind ``decision``. Policy never ran where the stage is not ``decide`` or later; the result still tells."""
    event: dict[str, Any] = {
        "labels": {"app": "agent-tool-gateway", "tenant": record["tenant"], "engine": record["engine"] or ""},
        "decision_id": record["decision_id"],
        "bundles": {record["tenant"]: {"revision": record["revision"]}} if record["revision"] else {},
        "path": "gateway/decision",
        "input": {
            "agent": record["agent"],
            "subject": record["subject"],
            "workflow": record["workflow"],
            "run": {"id": record["run_id"]},
            "tool": {"name": record["tool"], "digest": record["tool_digest"], "risk": record["risk"]},
        },
        "result": {name: record[name] for name in ("effect", "reason_code", "stage", "policy", "status", "rules", "obligations")},
        "erased": list(_ERASED),
        "requested_by": record["agent"],
        "timestamp": record["at"],
        "metrics": {f"timer_{stage['name']}_ns": round(stage["ms"] * 1_000_000) for stage in record["stages"]},
        "custom": {
            name: record[name] for name in ("position", "schema_version", "call_id", "argument_keys", "arguments_digest", "approval_id")
        },
    }
    if record["trace_id"]:
        event["trace_id"] = record["trace_id"]
    return event
