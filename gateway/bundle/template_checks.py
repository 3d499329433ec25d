"""Templates: every reference names a field that exists, and a path can only become one path of its own service."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gateway.bundle.catalogue_files import Catalogue, Placed
from gateway.bundle.schema_fields import find_fields
from gateway.bundle.sources import point
from gateway.domain.catalogue import HttpRequest, Reference, ToolDeclaration
from gateway.domain.findings import Finding
from gateway.domain.references import path_references

_REFERENCE = TypeAdapter(Reference)
_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@-]*")
_MEND_FIELD = "Correct the name; fields are args.<name>, context.<name>, subject, agent, run_id and downstream_key."


def check_templates(tool: Placed[ToolDeclaration], catalogue: Catalogue) -> Iterator[Finding]:
    """Every reference of a tool against its parameters and the contexts of the workflows that expose it."""
    declared = tool.value
    if declared.execute.http is not None:
        yield from _check_request(tool, catalogue, "/execute/http", declared.execute.http)
    if declared.probe is not None:
        yield from _check_request(tool, catalogue, "/probe/http", declared.probe.http)
    if declared.idempotency is not None and declared.idempotency != "caller":
        for index, reference in enumerate(declared.idempotency.key):
            pointer = f"/idempotency/key/{index}"
            if reference == "downstream_key":
                yield tool.source.finding(
                    pointer,
                    "template-field",
                    "a business key cannot contain the key that is made from it",
                    "Name the arguments that make two calls the same action.",
                )
                continue
            yield from _check_reference(tool, catalogue, pointer, reference)
            if (
                reference.startswith("args.")
                and _exists(declared.parameters, reference)
                and not find_fields(declared.parameters, reference.split(".")[1:]).is_required
            ):
                message = f"`{reference}` may be missing; all calls without it are then the same action"
                yield tool.source.finding(pointer, "template-field-optional", message, "Make the argument required.", severity="warning")


def _check_request(tool: Placed[ToolDeclaration], catalogue: Catalogue, pointer: str, request: HttpRequest) -> Iterator[Finding]:
    yield from _check_path(tool, catalogue, f"{pointer}/path", request.path)
    for name, reference in request.query.items():
        yield from _check_reference(tool, catalogue, pointer + point("query", name), reference)
    if request.body is not None and request.body.json_ != "args":
        for name, reference in request.body.json_.items():
            yield from _check_reference(tool, catalogue, pointer + point("body", "json", name), reference)


def _check_path(tool: Placed[ToolDeclaration], catalogue: Catalogue, pointer: str, path: str) -> Iterator[Finding]:
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        literal = re.sub(r"\{[^{}]*\}", "", segment)
        is_empty = not segment and (index < len(segments) - 1 or (index == 0 and len(segments) > 1))
        if is_empty or segment in (".", "..") or not _LITERAL.fullmatch(literal):
            mend = "Use letters, digits and ._~!$&'()*+,;=:@- between slashes; put values in as {args.name}, and queries under `query`."
            yield tool.source.finding(pointer, "path-invalid", f"the segment `{segment}` of the path is not allowed", mend)
    for reference in path_references(path):
        if not _is_reference(reference):
            yield tool.source.finding(pointer, "template-field", f"`{{{reference}}}` is no template field", _MEND_FIELD)
            continue
        yield from _check_reference(tool, catalogue, pointer, reference)
        if not reference.startswith("args.") or not _exists(tool.value.parameters, reference):
            continue
        fields = find_fields(tool.value.parameters, reference.split(".")[1:])
        if not fields.is_required:
            yield tool.source.finding(
                pointer, "template-field-optional", f"`{reference}` stands in the path but may be missing", "Make the argument required."
            )
        if fields.kinds & {"object", "array"}:
            yield tool.source.finding(
                pointer, "template-field", f"`{reference}` stands in the path but is a list or an object", "Use a text or a number."
            )


def _check_reference(tool: Placed[ToolDeclaration], catalogue: Catalogue, pointer: str, reference: str) -> Iterator[Finding]:
    if reference.startswith("args.") and not _exists(tool.value.parameters, reference):
        names = ", ".join(sorted(tool.value.parameters.get("properties", {}))) or "none"
        yield tool.source.finding(
            pointer, "template-field", f"`{reference}` is no argument of this tool; its arguments: {names}", _MEND_FIELD
        )
    if reference.startswith("context."):
        for name, workflow in catalogue.workflows_with(tool.value.name).items():
            if workflow.value.context is None or not _exists(workflow.value.context, reference):
                message = f"`{reference}` is not declared in the context of the workflow `{name}`, which exposes this tool"
                yield tool.source.finding(
                    pointer, "template-field", message, f"Declare it under `context` of `{name}` in workflows.yaml, or correct the name."
                )


def _exists(schema: dict[str, Any], reference: str) -> bool:
    return bool(find_fields(schema, reference.split(".")[1:]).schemas)


def _is_reference(text: str) -> bool:
    try:
        _REFERENCE.validate_python(text)
    except ValidationError:
        return False
    return True
