"""What one tool's declaration must say: how it runs, how it is repeated, how its answers are read, what is kept of it."""

import re
from collections.abc import Iterator
from itertools import combinations

from gateway.bundle.catalogue_files import Placed
from gateway.bundle.schema_fields import find_fields, is_open_at
from gateway.bundle.sources import point
from gateway.domain.budgets import OWN_UNITS
from gateway.domain.catalogue import AnswerClass, CostFromArgument, Replay, Risk, ToolDeclaration
from gateway.domain.findings import Finding

_UNIT = re.compile(r"[a-z][a-z0-9_]{0,31}")
_MAX_TIMEOUT = 600.0
_RESERVED_HEADERS = frozenset({
    "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "forwarded", "host",
    "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "via",
})  # fmt: skip


def check_tool(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    """Everything that can be said about a tool alone, its schemas and templates apart."""
    yield from _check_executor(tool)
    yield from _check_repeating(tool)
    yield from _check_durations(tool)
    yield from _check_answers(tool)
    yield from _check_costs(tool)
    yield from _check_actual_costs(tool)
    yield from _check_record(tool)
    for index, permission in enumerate(tool.value.permissions):
        if permission in tool.value.permissions[:index]:
            yield tool.source.finding(f"/permissions/{index}", "entry-repeated", f"`{permission}` stands twice", "Remove one.")


def _check_executor(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    declared, source = tool.value, tool.source
    if declared.execute.kind == "mcp":
        yield source.finding("/execute/mcp", "executor-not-built", "MCP executors are not built yet", "Use http or python.")
    if declared.execute.client is not None:
        yield from _check_client(tool)
    request = declared.execute.http
    if request is None:
        return
    if request.body is not None and request.method == "GET":
        yield source.finding("/execute/http/body", "request-body", "a GET request has no body", "Use `query`, or another method.")
    if declared.risk is Risk.READ and request.method in ("PUT", "PATCH", "DELETE"):
        yield source.finding(
            "/execute/http/method",
            "read-changes",
            f"a tool of risk read that sends {request.method}",
            "Raise `risk`, or use GET.",
            severity="warning",
        )


def _check_client(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    """Where a tool runs is a fact of its declaration: what the client performs has nothing that the gateway would do or read."""
    declared, source = tool.value, tool.source
    if declared.risk is not Risk.READ and declared.replay not in (None, Replay.NEVER):
        yield source.finding(
            "/replay",
            "client-repeats",
            f"`replay: {declared.replay}` of a tool that the client performs: the gateway can neither repeat it nor ask",
            "Write `replay: never`; a late result of the client still counts.",
        )
    rules = declared.result
    for name, answers in (("no_match", rules.no_match), ("failed", rules.failed), ("no_effect", rules.no_effect)):
        if answers is not None:
            yield source.finding(
                f"/result/{name}",
                "client-answers",
                f"`{name}` reads an answer of a service, and this tool's result is what the client says",
                "Remove it; the client posts ok, no_match or failed.",
            )


def _check_repeating(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    declared, source = tool.value, tool.source
    if declared.risk is not Risk.READ:
        if declared.idempotency is None:
            yield source.finding(
                "/risk",
                "idempotency-missing",
                f"a tool of risk {declared.risk} must say when two calls are the same action",
                "Add `idempotency: {key: [subject, args.…], window: 30m}`, or `idempotency: caller`.",
            )
        if declared.replay is None:
            yield source.finding(
                "/risk",
                "replay-missing",
                f"a tool of risk {declared.risk} must say what may follow an unknown outcome",
                "Add `replay: keyed`, `probe`, `safe` or `never`.",
            )
    for replay, part in ((Replay.KEYED, declared.keyed), (Replay.PROBE, declared.probe)):
        if declared.replay is replay and part is None:
            yield source.finding(
                "/replay",
                "replay-incomplete",
                f"`replay: {replay}` needs a `{replay}` section",
                f"Add `{replay}: {{…}}`; docs/bundle.md describes it.",
            )
        if declared.replay is not replay and part is not None:
            yield source.finding(
                f"/{replay}",
                "replay-incomplete",
                f"a `{replay}` section without `replay: {replay}`",
                f"Write `replay: {replay}`, or remove the section.",
            )
    if declared.keyed is not None and declared.keyed.header.lower() in _RESERVED_HEADERS:
        yield source.finding(
            "/keyed/header",
            "header-reserved",
            f"the gateway itself sets the header {declared.keyed.header}",
            "Use the service's own header, such as Idempotency-Key.",
        )
    if declared.probe is not None and declared.probe.http.method != "GET":
        yield source.finding("/probe/http/method", "probe-changes", "a probe only asks, so its method is GET", "Use GET.")
    if declared.probe is not None and declared.probe.http.body is not None:
        yield source.finding("/probe/http/body", "request-body", "a GET request has no body", "Use `query`.")


def _check_durations(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    declared, source = tool.value, tool.source
    if not 0 < declared.timeout <= _MAX_TIMEOUT:
        yield source.finding(
            "/timeout", "duration-range", "`timeout` must be more than 0 and at most 10m", "Choose how long a caller may wait, such as 8s."
        )
    if declared.keyed is not None and declared.keyed.retention <= 0:
        yield source.finding(
            "/keyed/retention",
            "duration-range",
            "`retention` must be more than 0",
            "Say how long the service remembers a key, such as 24h.",
        )
    if declared.idempotency is not None and declared.idempotency != "caller" and declared.idempotency.window <= 0:
        yield source.finding(
            "/idempotency/window",
            "duration-range",
            "`window` must be more than 0",
            "Say for how long the action must not be repeated, such as 30m.",
        )


def _check_answers(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    rules = tool.value.result
    named = {"no_match": rules.no_match, "failed": rules.failed, "no_effect": rules.no_effect}
    yield from _check_classes(tool, "/result", named)
    if tool.value.probe is not None:
        yield from _check_classes(tool, "/probe", {"found": tool.value.probe.found, "not_found": tool.value.probe.not_found})


def _check_classes(tool: Placed[ToolDeclaration], pointer: str, named: dict[str, AnswerClass | None]) -> Iterator[Finding]:
    classes = {name: answers for name, answers in named.items() if answers is not None}
    for name, answers in classes.items():
        if not answers.status and answers.empty is None:
            yield tool.source.finding(
                f"{pointer}/{name}",
                "answer-class-empty",
                f"`{name}` names no answer",
                "Add `status: [404]` or `empty: /pointer`, or remove it.",
            )
    for (first, one), (second, other) in combinations(classes.items(), 2):
        for status in sorted(set(one.status) & set(other.status)):
            yield tool.source.finding(
                f"{pointer}/{second}",
                "answer-class-conflict",
                f"status {status} stands in `{first}` and in `{second}`",
                "Keep it in one of them.",
            )
        if one.empty is not None and one.empty == other.empty:
            yield tool.source.finding(
                f"{pointer}/{second}",
                "answer-class-conflict",
                f"`empty: {one.empty}` stands in `{first}` and in `{second}`",
                "Keep it in one of them.",
            )


def _check_costs(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    declared, source = tool.value, tool.source
    for unit, cost in declared.cost.items():
        place = point("cost", unit)
        if not _UNIT.fullmatch(unit) or unit in OWN_UNITS:
            yield source.finding(
                place,
                "unit-invalid",
                f"`{unit}` cannot be a unit of cost",
                f"Use lower-case letters, digits and _; {', '.join(sorted(OWN_UNITS))} are counted by the gateway itself.",
            )
        if not isinstance(cost, CostFromArgument):
            continue
        fields = find_fields(declared.parameters, cost.arg.split("/")[1:])
        if not fields.schemas:
            yield source.finding(
                f"{place}/arg", "template-field", f"`{cost.arg}` is no argument of this tool", "Point at a number among `parameters`."
            )
        elif not fields.kinds & {"number", "integer", "string"}:
            yield source.finding(
                f"{place}/arg", "cost-not-number", f"`{cost.arg}` is not a number", "Point at a number among `parameters`."
            )
        else:
            if not fields.is_required:
                yield source.finding(
                    f"{place}/arg",
                    "cost-unbounded",
                    f"`{cost.arg}` may be missing, and then a budget in {unit} refuses the call",
                    "Make it required.",
                    severity="warning",
                )
            if fields.kinds & {"number", "integer"} and not any(
                max(schema.get("minimum", -1), schema.get("exclusiveMinimum", -1)) >= 0 for schema in fields.schemas
            ):
                yield source.finding(
                    f"{place}/arg",
                    "cost-unbounded",
                    f"`{cost.arg}` may be negative",
                    "Add `minimum: 0` to the argument.",
                    severity="warning",
                )


def _check_actual_costs(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    declared, source = tool.value, tool.source
    for unit, actual in declared.actual.items():
        place = point("actual", unit)
        if unit not in declared.cost:
            yield source.finding(
                place,
                "unit-unknown",
                f"`actual` names the unit `{unit}` that `cost` does not",
                "Add it to `cost`: what is settled must have been reserved.",
            )
        if not is_open_at(declared.result.output, actual.result.split("/")[1:]):
            yield source.finding(
                f"{place}/result", "template-field", f"`{actual.result}` is no field of `result.output`", "Point at a number of the answer."
            )


def _check_record(tool: Placed[ToolDeclaration]) -> Iterator[Finding]:
    declared, source = tool.value, tool.source
    for index, pointer in enumerate(declared.record.redact):
        _, root, *fields = pointer.split("/")
        is_known = find_fields(declared.parameters, fields).schemas if root == "args" else is_open_at(declared.result.output, fields)
        if fields and not is_known:
            mend = "Correct the pointer: what it was meant to hide is kept in clear."
            yield source.finding(f"/record/redact/{index}", "redact-field", f"`{pointer}` points at nothing in the tool's schemas", mend)
