"""Tools and calls for executor tests."""

from typing import Any
from uuid import UUID

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.outcome import Delivery
from gateway.domain.ports import Executor, Invocation

DECISION_ID = UUID("01990000-0000-7000-8000-000000000001")
DOWNSTREAM_KEY = "downstream-key-0001"


def declare_tool(execute: dict[str, Any], **more: Any) -> ToolDeclaration:
    """A tool that runs as `execute` says."""
    fields: dict[str, Any] = {
        "name": "a_tool",
        "title": "A tool",
        "description": "A tool.",
        "risk": "read",
        "permissions": ["a:tool"],
        "parameters": {"type": "object"},
        "timeout": "2s",
    }
    return ToolDeclaration.model_validate({**fields, "execute": execute, **more})


def declare_http_tool(method: str = "GET", path: str = "/answer", *, connection: str = "spy", **more: Any) -> ToolDeclaration:
    """A tool that is one HTTP request; `query` and `body` belong to the request."""
    request = {name: more.pop(name) for name in ("query", "body") if name in more}
    return declare_tool({"http": {"connection": connection, "method": method, "path": path, **request}}, **more)


def invoke(tool: ToolDeclaration, args: dict[str, Any] | None = None, **more: Any) -> Invocation:
    """A call of `tool` by ada's assistant."""
    fields: dict[str, Any] = {
        "decision_id": DECISION_ID,
        "args": args or {},
        "context": {},
        "tenant": "default",
        "agent": "travel-assistant",
        "subject": "ada",
        "run_id": "run-1",
        "downstream_key": DOWNSTREAM_KEY,
    }
    return Invocation(tool=tool, **{**fields, **more})


async def deliver(executor: Executor, invocation: Invocation) -> Delivery:
    """Prepare, send and release, as the execute stage does."""
    dispatch = await executor.prepare(invocation)
    assert isinstance(dispatch, Dispatch), dispatch
    try:
        return await dispatch.send()
    finally:
        dispatch.release()
