"""Anthropic's Messages API: declarations for its SDK, calls out of a message, the one user message that answers them.

Sources: the types of anthropic 2.14 (``ToolParam``, ``ToolUseBlock``, ``ToolResultBlockParam``).
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from gateway.dialects.portable_schema import JSON_SCHEMA, portable_parameters
from gateway.dialects.turn import ERROR_STATUSES, TurnCall, TurnUnreadable, result_text, text_or_none
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.result import Answer

_ECHOED = ("toolset_name",)
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded"})


def declarations(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """What ``messages.create(tools=…)`` takes: ``[{name, description, input_schema}]``."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": portable_parameters(tool.parameters, JSON_SCHEMA)}
        for tool in tools
    ]


def read_turn(turn: object) -> list[TurnCall]:
    """The calls of an assistant's ``Message`` or of its bare list of content blocks, in order.

    Thinking, text and blocks of Anthropic's own servers (``server_tool_use``, ``mcp_tool_use``) are passed over.
    `TurnUnreadable` where there is no content to read.
    """
    content, pointer, is_cut_off = (cast("list[Any]", turn), "", False) if isinstance(turn, list) else _content(turn)
    return [
        _call(cast("dict[str, Any]", block), f"{pointer}/{index}", is_cut_off=is_cut_off and index == len(content) - 1)
        for index, block in enumerate(content)
        if isinstance(block, dict) and cast("dict[str, Any]", block).get("type") == "tool_use"
    ]


def _content(turn: object) -> tuple[list[Any], str, bool]:
    """The blocks, their pointer, and whether the model was stopped while it wrote the last one."""
    if not isinstance(turn, dict) or "content" not in turn:
        raise TurnUnreadable("a turn is an assistant's message with its content, or the list of content blocks")
    fields = cast("dict[str, Any]", turn)
    if fields.get("role", "assistant") != "assistant":
        raise TurnUnreadable("the message is not the assistant's")
    content: Any = fields["content"]
    if content is None or isinstance(content, str):
        return [], "/content", False
    if not isinstance(content, list):
        raise TurnUnreadable("content of the message is not a list")
    stopped_by: Any = fields.get("stop_reason")
    return cast("list[Any]", content), "/content", isinstance(stopped_by, str) and stopped_by in _CUT_OFF


def _call(block: dict[str, Any], pointer: str, *, is_cut_off: bool) -> TurnCall:
    name = block.get("name")
    return TurnCall(
        pointer=pointer,
        args_pointer=f"{pointer}/input",
        id=text_or_none(block.get("id")),
        name=name if isinstance(name, str) else None,
        args=block.get("input"),
        is_cut_off=is_cut_off,
        echoed={name: block[name] for name in _ECHOED if block.get(name) is not None},
    )


def write_turn(calls: Sequence[TurnCall], answers: Sequence[Answer]) -> dict[str, Any]:
    """The one user message with a ``tool_result`` block per call, in order; each content is the result as JSON text."""
    return {"role": "user", "content": [_result(call, answer) for call, answer in zip(calls, answers, strict=True)]}


def _result(call: TurnCall, answer: Answer) -> dict[str, Any]:
    identity = {"tool_use_id": call.id} if call.id is not None else {}
    told = {"content": result_text(answer), "is_error": answer.result.status in ERROR_STATUSES}
    return {"type": "tool_result"} | identity | call.echoed | told
