"""What a turn of the model means for the loop: pure rules over stored turns, so that whoever resumes a run reads the same."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.api.strict_json import Document, NotJson, defects_in, read_json
from gateway.dialects.gemini import read_turn
from gateway.dialects.turn import TurnCall, TurnUnreadable
from gateway.domain.catalogue import FieldError
from gateway.domain.json_values import is_array, is_object
from gateway.domain.runs import MAX_ANSWER_CHARACTERS, MAX_CONVERSATION_BYTES, RunEnd, Turn

MAX_CALLS = 64
"""Calls of one turn, as in a round over HTTP."""
MAX_STEERS = 3
"""How often a run tells the model that its turn cannot be used, before it ends."""
REPEATS_NOTED = 2
"""So many equal rounds in a row, and the model is told."""
REPEATS_END = 4
"""So many equal turns in a row, and the run ends before the calls are made once more."""

_USABLE = frozenset({None, "STOP", "FINISH_REASON_UNSPECIFIED", "UNEXPECTED_TOOL_CALL"})
"""Finish reasons of turns whose calls are complete. A call of an undeclared name is one that gets a refusal."""
_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"})

REPEATED_NOTE = "You already made exactly these calls and got these results. Use them; do not make the same calls again."
MALFORMED_NOTE = "Your last turn could not be read as function calls. Call only the declared functions, at most 64, with JSON arguments."
TRUNCATED_NOTE = "Your last turn was cut off because it was too long. Nothing of it was run. Be brief, or make fewer calls."
SILENT_NOTE = "You said nothing. Answer the request now, in words."


@dataclass(frozen=True, kw_only=True)
class Calls:
    """The model wants these calls. `note` is said to it beside their results."""

    calls: tuple[TurnCall, ...]
    defects: tuple[tuple[FieldError, ...], ...]
    """For each call, what in its arguments cannot be carried."""
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Steer:
    """The turn cannot be used; the model is told so and asked again. `code` is what the run ends with if that goes on."""

    code: RunEnd
    note: str


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The run ends: with an answer, or with what went wrong."""

    end: RunEnd
    answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadTurn:
    """A turn as far as it can be read."""

    content: dict[str, Any] | None
    """What goes back to the model of it, unchanged; None where there is nothing."""
    finish_reason: str | None
    is_blocked: bool
    """The service refused the prompt."""
    calls: tuple[TurnCall, ...]
    defects: tuple[tuple[FieldError, ...], ...]
    text: str
    tokens: int
    is_readable: bool


def read(response: bytes) -> ReadTurn:
    """Read the body of an answer. What cannot be read is data too: `is_readable` is False."""
    try:
        document = read_json(response)
    except NotJson:
        document = Document(value=None)
    body: dict[str, Any] = document.value if is_object(document.value) else {}
    candidates = body.get("candidates")
    candidate: Any = candidates[0] if is_array(candidates) and candidates else None
    content: Any = candidate.get("content") if is_object(candidate) else None
    parts: Any = content.get("parts") if is_object(content) else None
    try:
        calls, is_readable = tuple(read_turn(body)), bool(body)
    except TurnUnreadable:
        calls, is_readable = (), False
    finish: Any = candidate.get("finishReason") if is_object(candidate) else None
    feedback = body.get("promptFeedback")
    return ReadTurn(
        content={"role": "model"} | content if is_object(content) and is_array(parts) and parts else None,
        finish_reason=finish if isinstance(finish, str) else None,
        is_blocked=is_object(feedback) and bool(feedback.get("blockReason")),
        calls=calls,
        defects=tuple(_defects(document, call) for call in calls),
        text=_text(parts),
        tokens=_tokens(body.get("usageMetadata")),
        is_readable=is_readable and len(calls) <= MAX_CALLS,
    )


def judge(turns: Sequence[Turn]) -> Calls | Steer | Stop:
    """What follows from the newest of a run's turns, whose reply is still open."""
    turn = read(turns[-1].response)
    steers_left = MAX_STEERS - sum(_was_unusable(earlier) for earlier in turns[:-1])
    found = _judge_alone(turn)
    if isinstance(found, Steer):
        return found if steers_left > 0 else Stop(end=found.code)
    if isinstance(found, Calls):
        repeats = _equal_in_a_row(turns)
        if repeats >= REPEATS_END:
            return Stop(end=RunEnd.MODEL_REPEATS)
        if repeats >= REPEATS_NOTED:
            return Calls(calls=found.calls, defects=found.defects, note=REPEATED_NOTE)
    return found


def conversation(prompt: str, turns: Sequence[Turn]) -> list[dict[str, Any]] | None:
    """What is sent to the model: the prompt, then each turn unchanged and its reply. None where it is too large."""
    if sum(len(turn.response) + len(turn.reply or b"") for turn in turns) > MAX_CONVERSATION_BYTES:
        return None
    contents = [user_text(prompt)]
    for turn in turns:
        found = read(turn.response)
        # A turn that could not be used is not repeated to the model: its calls would want answers.
        if found.content is not None and isinstance(_judge_alone(found), Calls):
            contents.append(found.content)
        if turn.reply is not None:
            contents.append(orjson.loads(turn.reply))
    return contents


def user_text(text: str) -> dict[str, Any]:
    """A user content of one text."""
    return {"role": "user", "parts": [{"text": text}]}


def _judge_alone(turn: ReadTurn) -> Calls | Steer | Stop:
    finish = turn.finish_reason
    if turn.is_blocked or (turn.is_readable and finish not in _USABLE | _MALFORMED | {"MAX_TOKENS"}):
        return Stop(end=RunEnd.MODEL_STOPPED)
    if finish == "MAX_TOKENS":
        return Steer(code=RunEnd.MODEL_TRUNCATED, note=TRUNCATED_NOTE)
    if not turn.is_readable or finish in _MALFORMED or (finish == "UNEXPECTED_TOOL_CALL" and not turn.calls):
        return Steer(code=RunEnd.MODEL_MALFORMED, note=MALFORMED_NOTE)
    if turn.calls:
        return Calls(calls=turn.calls, defects=turn.defects)
    if not turn.text.strip():
        return Steer(code=RunEnd.MODEL_SILENT, note=SILENT_NOTE)
    return Stop(end=RunEnd.RUN_ANSWERED, answer=turn.text[:MAX_ANSWER_CHARACTERS])


def _was_unusable(turn: Turn) -> bool:
    return isinstance(_judge_alone(read(turn.response)), Steer)


def _equal_in_a_row(turns: Sequence[Turn]) -> int:
    """How many of the newest turns make exactly the same calls, the newest included. Calls that were not made do not count."""
    newest = _digest(read(turns[-1].response))
    count = 0
    for turn in reversed(turns):
        found = read(turn.response)
        if _digest(found) != newest or not isinstance(_judge_alone(found), Calls):
            break
        count += 1
    return count


def _digest(turn: ReadTurn) -> bytes:
    try:
        written = orjson.dumps([[call.name, call.args] for call in turn.calls], option=orjson.OPT_SORT_KEYS)
    except TypeError:  # numbers that no arguments may hold
        written = repr([[call.name, call.args] for call in turn.calls]).encode("utf-8", "surrogatepass")
    return hashlib.sha256(written).digest()


def _defects(document: Document, call: TurnCall) -> tuple[FieldError, ...]:
    return (*document.defects_below(call.args_pointer), *defects_in(call.args))[:20]


def _text(parts: Any) -> str:
    """The words for the person: all texts but the model's thoughts."""
    texts = (
        [part["text"] for part in parts if is_object(part) and isinstance(part.get("text"), str) and not part.get("thought")]
        if is_array(parts)
        else []
    )
    return "".join(texts).replace("\0", "\ufffd")


def _tokens(usage: Any) -> int:
    total: Any = usage.get("totalTokenCount") if is_object(usage) else None
    return total if type(total) is int and 0 <= total <= 10**9 else 0
