"""Building the one HTTP request of a call from its declaration and the values that references name."""

import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from gateway.domain.catalogue import FieldError, HttpRequest, ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import MISSING, Sources, path_references

_ROOTS = frozenset({"args", "context", "subject", "agent", "run_id", "downstream_key"})
_REFERENCE = re.compile(r"\{([^{}]*)\}")
_LITERAL_PATH = re.compile(r"/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*")  # RFC 3986, pchar and slash
_DOT_SEGMENT = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)

_OWN_HEADERS = frozenset({
    "accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie",
    "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    "x-gateway-call-id",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RenderedRequest:
    """A request without its origin and headers. `path` and `query` are percent-encoded already."""

    method: str
    path: str
    query: str
    body: bytes | None
    """JSON, or None for a request without a body."""


class _UnfitError(Exception):
    """A value cannot stand where its reference puts it; says where and why, never the value."""

    def __init__(self, reference: str, message: str) -> None:
        super().__init__(message)
        self.reference = reference
        self.message = message

    def as_refusal(self) -> Refusal:
        root, _, fields = self.reference.partition(".")
        is_argument = root == "args"
        return Refusal(
            reason_code=ReasonCode.ARGUMENTS_INVALID if is_argument else ReasonCode.CONTEXT_INVALID,
            errors=(FieldError(path="/" + fields.replace(".", "/") if fields else "", message=self.message),),
        )


def check_request(tool: ToolDeclaration, request: HttpRequest) -> str | None:
    """Why a declared request could not be sent as written, or None."""
    references = [*path_references(request.path), *request.query.values()]
    if request.body is not None and request.body.json_ != "args":
        references += request.body.json_.values()
    if unknown := [reference for reference in references if reference.split(".")[0] not in _ROOTS]:
        return f"unknown reference {unknown[0]}"
    literal = _REFERENCE.sub("x", request.path)
    if not _LITERAL_PATH.fullmatch(literal) or any(map(_DOT_SEGMENT.fullmatch, literal.split("/"))):
        return "the path may hold only URL path characters and {references}, and no '.' or '..' segment"
    if tool.keyed is not None and tool.keyed.header.lower() in _OWN_HEADERS:
        return f"the header {tool.keyed.header} belongs to the gateway and cannot carry the key"
    return None


def render(request: HttpRequest, sources: Sources) -> RenderedRequest | Refusal:
    """The request with every reference replaced, or the refusal that names the value that does not fit.

    A reference whose value is absent (or null, in the query) is left out; in the path it is refused.
    """
    try:
        return RenderedRequest(
            method=request.method,
            path="/".join(_render_segment(segment, sources) for segment in request.path.split("/")),
            query=urlencode(_query_fields(request, sources), quote_via=quote, safe=""),
            body=_render_body(request, sources),
        )
    except _UnfitError as unfit:
        return unfit.as_refusal()


def _render_segment(template: str, sources: Sources) -> str:
    rendered = _REFERENCE.sub(lambda match: _path_value(match[1], sources), template)
    # Two harmless values in one segment can still add up to a dot segment.
    if rendered != template and _DOT_SEGMENT.fullmatch(rendered):
        raise _UnfitError(path_references(template)[0], "must not be '.' or '..'")
    return rendered


def _path_value(reference: str, sources: Sources) -> str:
    value = sources.read(reference)
    if value is MISSING or value is None or value == "":
        raise _UnfitError(reference, "must not be absent or empty")
    text = _as_text(reference, value)
    if text in {".", ".."}:
        raise _UnfitError(reference, "must not be '.' or '..'")
    return quote(text, safe="")


def _query_fields(request: HttpRequest, sources: Sources) -> list[tuple[str, str]]:
    values = ((name, reference, sources.read(reference)) for name, reference in request.query.items())
    return [(name, _as_text(reference, value)) for name, reference, value in values if value is not MISSING and value is not None]


def _as_text(reference: str, value: Any) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _UnfitError(reference, "must be valid Unicode") from None
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise _UnfitError(reference, "must be a string, a number or a boolean")


def _render_body(request: HttpRequest, sources: Sources) -> bytes | None:
    if request.body is None:
        return None
    if request.body.json_ == "args":
        document = dict(sources.args)
    else:
        fields = ((name, sources.read(reference)) for name, reference in request.body.json_.items())
        document = {name: value for name, value in fields if value is not MISSING}
    try:
        return orjson.dumps(document)
    except TypeError:  # orjson's word for a lone surrogate or an integer beyond 64 bits; earlier stages refuse both
        raise _UnfitError("args", "must be plain JSON") from None
