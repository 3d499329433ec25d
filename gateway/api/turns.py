"""Rounds in a vendor's dialect: the calls out of a native model turn, and the native turn that answers it.

Whatever the model wrote gets a result. A turn that is not one of its dialect is the agent service's mistake, a 400.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from gateway.api.envelope import INLINE_BODY_BYTES, Setting, check, keys_of_round, read_body, read_key_header, refuse_defects
from gateway.api.problems import Problem, ProblemError
from gateway.api.strict_json import Document, NotJson, defects_in, read_json
from gateway.dialects.registry import DIALECTS
from gateway.dialects.turn import Turn, TurnCall, TurnUnreadable
from gateway.domain.call import ProposedCall
from gateway.domain.catalogue import FieldError
from gateway.domain.result import Answer

MAX_CALLS = 512
"""Calls of one turn that get results; a longer turn is too large as a body is. How many of them may run is the enforcer's bound."""
MAX_DEFECTS = 20

CUT_OFF = "the model was stopped before it had written these arguments; write the whole call anew"


class TurnRequest(Setting):
    """Body of ``POST /v1/rounds?dialect=…``: one model turn as the vendor's API answered it."""

    turn: Annotated[Any, Field(description="The response, message or items of the dialect; untouched, signatures and all.")]
    approval_ids: Annotated[
        list[Annotated[str, Field(max_length=128)] | None] | None,
        Field(max_length=MAX_CALLS, description="For each call of the turn, in order, the approval that it uses, or null."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReadTurn:
    """A turn request: its envelope, the turn with its calls, and the same calls as the gateway governs them."""

    envelope: TurnRequest
    turn: Turn
    calls: Sequence[ProposedCall]

    def answer(self, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The body that answers: results in the gateway's own form, and the answering turn in the dialect's."""
        results = [_with_id(answer, call) for answer, call in zip(answers, self.turn.calls, strict=True)]
        return {"results": results, "turn": self.turn.answer([Answer.model_validate(answer) for answer in answers])}


async def read_turn_request(request: web.Request, dialect: str) -> ReadTurn:
    """The model's turn in a request, read in `dialect`. Raises Problem."""
    read = DIALECTS.get(dialect)
    if read is None:
        raise Problem(400, "PARAMETER_INVALID", f"`dialect` is one of: {', '.join(DIALECTS)}.")
    document = await read_body(request)
    envelope = check(TurnRequest, document.value)
    refuse_defects(document, ("/turn/",), envelope.context or {})
    try:
        turn = read(envelope.turn)
    except TurnUnreadable as error:
        wrong = ProblemError(pointer="/turn", message=str(error))
        raise Problem(400, "TURN_UNREADABLE", f"The turn is not one of the dialect `{dialect}`; see `errors`.", errors=[wrong]) from None
    if len(turn.calls) > MAX_CALLS:
        raise Problem(413, "TURN_TOO_LARGE", f"A turn may hold at most {MAX_CALLS} calls.")
    approval_ids = _approval_ids(envelope, turn)
    key = read_key_header(request)
    keys = [None] * len(turn.calls) if key is None else keys_of_round(key, len(turn.calls))
    # The body is in memory already; large ones are translated beside the event loop, as they were read.
    is_large = len(await request.read()) > INLINE_BODY_BYTES
    calls = (
        await asyncio.to_thread(_propose, document, turn, keys, approval_ids) if is_large else _propose(document, turn, keys, approval_ids)
    )
    return ReadTurn(envelope=envelope, turn=turn, calls=calls)


def _approval_ids(envelope: TurnRequest, turn: Turn) -> list[str | None]:
    given = envelope.approval_ids
    if given is None:
        return [None] * len(turn.calls)
    if len(given) != len(turn.calls):
        wrong = ProblemError(pointer="/approval_ids", message=f"must have one entry per call of the turn, which has {len(turn.calls)}")
        raise Problem(400, "ENVELOPE_INVALID", "The request does not have the expected form; see `errors`.", errors=[wrong])
    first: dict[str, str | None] = {}
    for index, (call, approval_id) in enumerate(zip(turn.calls, given, strict=True)):
        if call.id is not None and first.setdefault(call.id, approval_id) != approval_id:
            split = ProblemError(pointer=f"/approval_ids/{index}", message="differs from that of an earlier call with the same id")
            raise Problem(400, "ENVELOPE_INVALID", "One call id has one approval.", errors=[split])
    return given


def _propose(document: Document, turn: Turn, keys: Sequence[str | None], approval_ids: Sequence[str | None]) -> list[ProposedCall]:
    calls: list[ProposedCall] = []
    for call, key, approval_id in zip(turn.calls, keys, approval_ids, strict=True):
        args, defects = _args_of(call, document)
        calls.append(
            ProposedCall(id=call.wire_id, name=call.name, args=args, defects=defects, idempotency_key=key, approval_id=approval_id)
        )
    return calls


def _args_of(call: TurnCall, document: Document) -> tuple[Any, tuple[FieldError, ...]]:
    """The arguments of a call and all that was wrong with them, whether they stood as JSON or as JSON text."""
    cut_off = (FieldError(path="", message=CUT_OFF),) if call.is_cut_off else ()
    defects = (*cut_off, *document.defects_below(f"/turn{call.args_pointer}"))
    args = call.args
    if call.args_text is not None:
        try:
            written = read_json(call.args_text.encode())
        except NotJson as error:
            return call.args_text, (*defects, FieldError(path="", message=f"not valid JSON: {error}"))
        args = written.value
        defects += written.defects_below("")
    return args, (*defects, *defects_in(args))[:MAX_DEFECTS]


def _with_id(answer: dict[str, Any], call: TurnCall) -> dict[str, Any]:
    """The answer under the model's own id, also where the wire's is a short form of it."""
    return answer if call.id == call.wire_id else answer | {"call": answer["call"] | {"id": call.id}}
