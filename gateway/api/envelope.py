"""Reading a request: strict JSON, the envelope's own models, and the calls that the model wrote inside it.

A fault of the envelope is a problem (400, 413, 415). Whatever the model wrote is carried on as it is: it gets a result.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from gateway.api.problems import Problem, ProblemError
from gateway.api.strict_json import Document, NotJson, defects_in, read_json
from gateway.domain.call import ProposedCall
from gateway.domain.catalogue import FieldError
from gateway.domain.runs import MAX_PROMPT_CHARACTERS

MAX_BODY_BYTES = 256 * 1024
INLINE_BODY_BYTES = 16 * 1024
"""Larger bodies are read beside the event loop."""

_KEY = re.compile(r"[\x21-\x7e]{16,255}")

Token = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\x21-\x7e]+$")]
"""A name of the agent service's own: visible ASCII without blanks."""


class _Envelope(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CallBody(_Envelope):
    """One proposed call. `name`, `args` and `id` are the model's words."""

    id: Annotated[str | None, Field(max_length=512, description="The model's own id, any text; a value of another type is a 400.")] = None
    name: Annotated[Any, Field(description="The tool; whatever stands here gets a result.")] = None
    args: Annotated[Any, Field(description="The arguments; whatever stands here gets a result. Absent, null and `{}` are the same.")] = None
    idempotency_key: Annotated[str, Field(pattern=r"^[\x21-\x7e]{16,255}$")] | None = None
    approval_id: Annotated[str, Field(max_length=128)] | None = None


class Setting(_Envelope):
    """In which workflow, run and context, and on whose behalf."""

    workflow: Token
    run_id: Token
    on_behalf_of: Token | None = None
    context: Annotated[dict[str, Any] | None, Field(description="Facts for policies, in the workflow's schema; null is `{}`.")] = None


class CallRequest(Setting):
    """Body of ``POST /v1/calls``."""

    call: CallBody


class RoundRequest(Setting):
    """Body of ``POST /v1/rounds``: all calls of one model turn."""

    calls: Annotated[list[CallBody], Field(min_length=1, max_length=64)]


class EvaluationRequest(CallRequest):
    """Body of ``POST /v1/evaluations``. `agent` is for authors, who ask about another agent."""

    agent: Token | None = None


class RunRequest(_Envelope):
    """Body of ``POST /v1/runs``: what the gateway asks a model for, until it answers."""

    workflow: Token
    on_behalf_of: Token | None = None
    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARACTERS)]
    model: (
        Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$", description="The model; the gateway's own default otherwise.")] | None
    ) = None
    context: Annotated[dict[str, Any] | None, Field(description="Facts for policies, in the workflow's schema; null is `{}`.")] = None


R = TypeVar("R", bound=CallRequest | RoundRequest)
M = TypeVar("M", bound=BaseModel)


async def read_request(request: web.Request, model: type[R]) -> tuple[R, list[ProposedCall]]:
    """The envelope of a request, and its calls in order. Raises Problem."""
    document = await read_body(request)
    envelope = check(model, document.value)
    bodies = envelope.calls if isinstance(envelope, RoundRequest) else [envelope.call]
    prefixes = [f"/calls/{index}" for index in range(len(bodies))] if isinstance(envelope, RoundRequest) else ["/call"]
    words = tuple(f"{prefix}/{part}/" for prefix in prefixes for part in ("id", "name", "args"))
    refuse_defects(document, words, envelope.context or {})
    keys = read_idempotency_keys(request, bodies, prefixes)
    calls = [
        ProposedCall(
            id=body.id,
            name=body.name if isinstance(body.name, str) else None,
            args=body.args,
            defects=(*document.defects_below(f"{prefix}/args"), *defects_in(body.args))[:20],
            idempotency_key=key,
            approval_id=body.approval_id,
        )
        for body, prefix, key in zip(bodies, prefixes, keys, strict=True)
    ]
    return envelope, calls


async def read_run_request(request: web.Request) -> tuple[RunRequest, str | None]:
    """The body of a request for a run, and its idempotency key. Raises Problem."""
    document = await read_body(request)
    body = check(RunRequest, document.value)
    refuse_defects(document, (), body.context or {})
    if found := defects_in(body.prompt):
        raise Problem(400, "ENVELOPE_INVALID", "See `errors`.", errors=[ProblemError(pointer="/prompt", message=found[0].message)])
    return body, read_key_header(request)


async def read_plain_request(request: web.Request, model: type[M]) -> M:
    """The body of a request that holds nothing of a model's. Raises Problem."""
    document = await read_body(request)
    body = check(model, document.value)
    refuse_defects(document, (), {})
    return body


async def read_body(request: web.Request) -> Document:
    """The body as strict JSON. Raises Problem: 400, 413, 415."""
    if request.content_type != "application/json":
        raise Problem(415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json.")
    if "Content-Encoding" in request.headers:
        raise Problem(415, "UNSUPPORTED_ENCODING", "Send the body without compression.")
    try:
        body = await request.read()
        # Hostile text of full size takes a quarter of a second; nobody else waits for it.
        return read_json(body) if len(body) <= INLINE_BODY_BYTES else await asyncio.to_thread(read_json, body)
    except web.HTTPRequestEntityTooLarge:
        raise Problem(413, "BODY_TOO_LARGE", f"The body may have at most {MAX_BODY_BYTES} bytes.") from None
    except NotJson as error:
        raise Problem(400, "NOT_JSON", str(error)) from None


def read_idempotency_keys(request: web.Request, bodies: Sequence[CallBody], prefixes: Sequence[str]) -> list[str | None]:
    """The key of each call: its own, or the header's (for a round: header and position). Raises Problem."""
    _refuse_split_twins(bodies, prefixes)
    key = read_key_header(request)
    if key is None:
        return [body.idempotency_key for body in bodies]
    for body, prefix in zip(bodies, prefixes, strict=True):
        if body.idempotency_key is not None:
            clash = ProblemError(pointer=f"{prefix}/idempotency_key", message="the header names a key already")
            raise Problem(400, "IDEMPOTENCY_KEY_INVALID", "Give a call one key: in the header or in the call.", errors=[clash])
    return [key] if prefixes == ["/call"] else keys_of_round(key, len(bodies))


def read_key_header(request: web.Request) -> str | None:
    """The key of the Idempotency-Key header; None where there is no such header. Raises Problem."""
    headers = request.headers.getall("Idempotency-Key", [])
    if not headers:
        return None
    if len(headers) > 1:
        raise Problem(400, "IDEMPOTENCY_KEY_INVALID", "Send one Idempotency-Key header.")
    key = headers[0].strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]  # the quoted form of RFC 8941 and the bare one are the same key
    if not _KEY.fullmatch(key):
        raise Problem(400, "IDEMPOTENCY_KEY_INVALID", "An idempotency key has 16 to 255 visible ASCII characters.")
    return key


def keys_of_round(key: str, calls: int) -> list[str | None]:
    """The keys of a round's calls: the header's and the position."""
    return [f"{key} {position}" for position in range(calls)]


def _refuse_split_twins(bodies: Sequence[CallBody], prefixes: Sequence[str]) -> None:
    # A model id that comes twice is one call; the agent service cannot give that one call two keys or two approvals.
    first: dict[str, CallBody] = {}
    for body, prefix in zip(bodies, prefixes, strict=True):
        twin = first.setdefault(body.id, body) if body.id is not None else body
        for name in ("idempotency_key", "approval_id"):
            if getattr(twin, name) != getattr(body, name):
                split = ProblemError(pointer=f"{prefix}/{name}", message="differs from that of an earlier call with the same id")
                raise Problem(400, "ENVELOPE_INVALID", "One call id has one key and one approval.", errors=[split])


def check(model: type[M], value: Any) -> M:
    """`value` as an envelope of this form. Raises Problem."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = [_explain(model, found) for found in error.errors(include_input=False, include_url=False)[:20]]
        raise Problem(400, "ENVELOPE_INVALID", "The request does not have the expected form; see `errors`.", errors=errors) from None


_SENTENCES = {
    "missing": "required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "string_unicode": "must be text without lone surrogates",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
}
_LIMITS = {
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
}
"""Sentences by pydantic's kinds of errors; its own would speak of Python's types."""


def _explain(model: type[BaseModel], found: ErrorDetails) -> ProblemError:
    loc, kind = found["loc"], found["type"]
    pointer = "".join(f"/{str(part)[:64]}" for part in loc)
    if kind == "extra_forbidden":
        name, inside = loc[-1:], CallBody if len(loc) > 1 else model
        message = f"unknown field; allowed: {', '.join(inside.model_fields)}"
        place = next((part for part in ("call", "calls") if part in inside.model_fields), None)
        if place is not None and set(name) <= CallBody.model_fields.keys():
            message += f"; `{name[0]}` belongs inside `{place}`"
    elif kind in _LIMITS:
        message = _LIMITS[kind].format_map(found.get("ctx", {}))
    else:
        message = _SENTENCES.get(kind, found["msg"])
    return ProblemError(pointer=pointer, message=message)


def refuse_defects(document: Document, models_words: tuple[str, ...], context: dict[str, Any]) -> None:
    """Refuse what cannot be carried exactly, unless a model wrote it: that begins with one of `models_words`. Raises Problem."""
    # The model's words get a result; all else is the agent service's own.
    own = [found for found in document.defects if not f"{found.path}/".startswith(models_words)]
    own += [FieldError(path=f"/context{found.path}", message=found.message) for found in defects_in(context)]
    if own:
        errors = [ProblemError(pointer=found.path, message=found.message) for found in own[:20]]
        raise Problem(400, "ENVELOPE_INVALID", "The request holds values that cannot be carried exactly; see `errors`.", errors=errors)
