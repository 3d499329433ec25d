"""How long the policies take at worst: for each tool the largest input that can come, in CPU time of a worker."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.domain.catalogue import Bundle, Tool
from gateway.domain.findings import Finding
from gateway.domain.json_values import is_array, is_object
from gateway.domain.policy_input import HISTORY_LIMIT
from gateway.policy.sandbox import Sandbox, SandboxError

MAX_CPU_MS = 50.0
"""More than this, best of three, stops activation."""
ATTEMPTS = 3
_TEXT, _ITEMS, _LEVELS = 4_000, 500, 4
"""How long texts, how many items and how deep objects are made where the schema sets no limit; an envelope has 256 KiB in all."""
_WHOLE = 200 * 1024
_NOW = "2026-03-01T10:00:00Z"


def time_worst_inputs(bundle: Bundle) -> list[Finding]:
    """A finding for each exposed tool whose largest input takes too long. Blocks; inside an event loop use a thread."""
    findings: list[Finding] = []
    ahead = [tool for tool in bundle.tools.values() if tool.declaration.exposed]
    while ahead:  # An evaluation that is ended takes its worker along; the next tool gets a new one.
        with Sandbox() as sandbox:
            if sandbox.load(bundle.policy.modules, bundle.policy.data) is not None:
                return findings  # told by the check of the Rego
            is_whole = True
            while ahead and is_whole:
                tool = ahead.pop(0)
                try:
                    took = _measure(sandbox, worst_document(bundle, tool))
                except SandboxError as fault:
                    is_whole = False
                    findings.append(_slow(tool, f"is given up: {fault}"))
                    continue
                if took > MAX_CPU_MS:
                    findings.append(_slow(tool, f"takes {took:.0f} ms of CPU time at best; the bound is {MAX_CPU_MS:.0f} ms"))
    return findings


def _measure(sandbox: Sandbox, document: bytes) -> float:
    fastest = float("inf")
    for _ in range(ATTEMPTS):
        before = sandbox.cpu_s
        sandbox.decide(document)
        fastest = min(fastest, (sandbox.cpu_s - before) * 1000)
        if fastest <= MAX_CPU_MS:
            break
    return fastest


def _slow(tool: Tool, what: str) -> Finding:
    return Finding(
        file=f"tools/{tool.name}.yaml",
        line=0,
        column=0,
        code="policy-slow",
        message=f"the decision on the largest input that `{tool.name}` accepts {what}",
        mend="Bound texts and lists in the tool's schema (maxLength, maxItems), and look for loops inside loops in the Rego that it reaches.",
    )


def worst_document(bundle: Bundle, tool: Tool) -> bytes:
    """The largest policy input of a tool, as far as its schema tells."""
    names = sorted(bundle.tools)
    past = [
        {"tool": names[place % len(names)], "status": "failed", "reason_code": "EXECUTION_FAILED", "at": _NOW}
        for place in range(HISTORY_LIMIT)
    ]
    counted = {"count": 1_000, "last_at": _NOW, "last_status": "ok"}
    known: list[dict[str, Any]] = [{}, *(dict(subject.attributes) for subject in bundle.subjects.values())]
    attributes = max(known, key=lambda found: len(orjson.dumps(found)))
    permissions = sorted({permission for agent in bundle.agents.values() for permission in agent.permissions})
    workflows = [found for found in bundle.workflows.values() if tool.name in found.declaration.tools]
    schema = tool.declaration.parameters
    document = {
        "agent": {"name": next(iter(bundle.agents), "agent"), "permissions": permissions},
        "subject": {"name": next(iter(bundle.subjects), "subject"), "permissions": permissions, "attributes": attributes},
        "tool": {"name": tool.name, "risk": tool.declaration.risk, "replay": tool.replay, "permissions": tool.declaration.permissions},
        "args": _fill(schema, schema, _Room(_WHOLE), 0),
        "cost": dict.fromkeys(tool.declaration.cost, 10**12),
        "workflow": {"name": workflows[0].name if workflows else "workflow", "max_risk": "irreversible"},
        "run": {"id": "run", "calls": 10**6, "failures": 10**3, "history": past},
        "recent": {"same_call": counted, "same_tool": counted},
        "approval": {"id": "a", "state": "granted", "rule": "other", "valid": True, "expires_at": _NOW},
        "context": {f"field{place}": "x" * 100 for place in range(50)},
        "now": _NOW,
    }
    return orjson.dumps(document)


class _Room:
    """How many bytes may still be filled."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, wanted: int) -> int:
        given = min(wanted, self.left)
        self.left -= given
        return given


def _fill(schema: Any, root: Any, room: _Room, level: int) -> Any:
    """A large value for a schema; it need not fit in every keyword, only in size and kind."""
    if not is_object(schema):
        return None
    if (reference := schema.get("$ref")) is not None:
        return _fill(_follow(str(reference), root), root, room, level + 1) if level <= _LEVELS else None
    if is_array(values := schema.get("enum")):
        return max(values, key=lambda value: len(repr(value)))
    if "const" in schema:
        return schema["const"]
    for keyword in ("anyOf", "oneOf"):
        if is_array(choices := schema.get(keyword)):
            return max((_fill(choice, root, _Room(room.left // 8), level + 1) for choice in choices), key=lambda value: len(repr(value)))
    kinds = schema.get("type", "string")
    return _of_kind(kinds if isinstance(kinds, str) else str(kinds[0]), schema, root, room, level)


def _of_kind(kind: str, schema: Mapping[str, Any], root: Any, room: _Room, level: int) -> Any:
    match kind:
        case "object":
            return dict(_fill_properties(schema, root, room, level)) if level <= _LEVELS else {}
        case "array":
            wanted = min(int(schema.get("maxItems", _ITEMS)), _ITEMS)
            return (
                [_fill(schema.get("items", {}), root, room, level + 1) for _ in range(wanted) if room.take(8)] if level <= _LEVELS else []
            )
        case "string":
            return "a" * room.take(min(int(schema.get("maxLength", _TEXT)), _TEXT if level < 2 else 40))
        case "integer" | "number":
            return int(schema.get("maximum", 2**53 - 1))
        case "boolean":
            return True
        case _:
            return None


def _fill_properties(schema: Mapping[str, Any], root: Any, room: _Room, level: int) -> Iterator[tuple[str, Any]]:
    for name, inner in schema.get("properties", {}).items():
        yield name, _fill(inner, root, room, level + 1)


def _follow(reference: str, root: Any) -> Any:
    node = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if is_object(node) else None
    return node
