"""OpenAI's Chat Completions API and those that imitate it: declarations, calls out of a completion, tool messages.

Sources: the types of openai 3.57 (``chat.ChatCompletionFunctionToolParam``, ``ChatCompletionMessageFunctionToolCall``).
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from gateway.dialects.openai import function
from gateway.dialects.turn import TurnCall, TurnUnreadable, blank_or_text, result_text, text_or_none
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.result import Answer


def declarations(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """What ``chat.completions.create(tools=…)`` takes: ``[{"type": "function", "function": {name, description, …}}]``."""
    return [{"type": "function", "function": function(tool)} for tool in tools]


def read_turn(turn: object) -> list[TurnCall]:
    """The calls of a ``ChatCompletion`` (its first choice) or of an assistant message, in order.

    Calls of custom tools are passed over; a call of any other strange shape is still a call, so that it gets an answer.
    `TurnUnreadable` where there is no message to read.
    """
    message, pointer, is_cut_off = _message(turn)
    written: Any = message.get("tool_calls")
    if written is None:
        return []
    if not isinstance(written, list):
        raise TurnUnreadable("tool_calls of the message are not a list")
    entries = cast("list[Any]", written)
    return [
        _call(entry, f"{pointer}/tool_calls/{index}", is_cut_off=is_cut_off and index == len(entries) - 1)
        for index, entry in enumerate(entries)
        if not _is_of_another_kind(entry)
    ]


def _message(turn: object) -> tuple[dict[str, Any], str, bool]:
    """The message, its pointer, and whether the model was stopped while it wrote."""
    if not isinstance(turn, dict):
        raise TurnUnreadable("a turn is an object: a chat completion or an assistant message")
    fields = cast("dict[str, Any]", turn)
    if "choices" not in fields:
        if fields.get("role") != "assistant":
            raise TurnUnreadable("the turn has neither choices nor the role `assistant`")
        return fields, "", False
    choices: Any = fields["choices"]
    if not isinstance(choices, list | None):
        raise TurnUnreadable("choices of the turn are not a list")
    if not choices:
        return {}, "", False
    first = cast("list[Any]", choices)[0]
    message: Any = cast("dict[str, Any]", first).get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise TurnUnreadable("the first choice has no message")
    is_cut_off = cast("dict[str, Any]", first).get("finish_reason") == "length"
    return cast("dict[str, Any]", message), "/choices/0/message", is_cut_off


def _is_of_another_kind(entry: object) -> bool:
    kind = cast("dict[str, Any]", entry).get("type") if isinstance(entry, dict) else None
    return isinstance(kind, str) and kind not in ("", "function")


def _call(entry: object, pointer: str, *, is_cut_off: bool) -> TurnCall:
    args_pointer = f"{pointer}/function/arguments"
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    called: Any = fields.get("function")
    written = cast("dict[str, Any]", called) if isinstance(called, dict) else {}
    name = written.get("name")
    return TurnCall(
        pointer=pointer,
        args_pointer=args_pointer,
        id=text_or_none(fields.get("id")),
        name=name if isinstance(name, str) else None,
        is_cut_off=is_cut_off,
        **blank_or_text(written.get("arguments")),
    )


def write_turn(calls: Sequence[TurnCall], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The ``tool`` messages that follow the assistant's, one per call, in order; each content is the result as JSON text."""
    return [
        {"role": "tool"} | ({"tool_call_id": call.id} if call.id is not None else {}) | {"content": result_text(answer)}
        for call, answer in zip(calls, answers, strict=True)
    ]
