"""OpenAI's Responses API: declarations for its SDK, calls out of a response, outputs into the next input.

Sources: the types of openai 3.57 (``responses.FunctionToolParam``, ``ResponseFunctionToolCall``, ``FunctionCallOutput``).
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from gateway.dialects.portable_schema import JSON_SCHEMA, portable_parameters
from gateway.dialects.turn import TurnCall, TurnUnreadable, blank_or_text, result_text, text_or_none
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.result import Answer

_ECHOED = ("caller", "namespace")


def declarations(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """What ``responses.create(tools=…)`` takes: ``[{"type": "function", name, description, parameters, strict: false}]``.

    Not strict: strict schemas know no optional field, and the gateway validates every call anyway.
    """
    return [{"type": "function"} | function(tool) for tool in tools]


def function(tool: ToolDeclaration) -> dict[str, Any]:
    """The function of a declaration, which both of OpenAI's APIs share."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": portable_parameters(tool.parameters, JSON_SCHEMA),
        "strict": False,
    }


def read_turn(turn: object) -> list[TurnCall]:
    """The calls of a ``Response`` or of its bare list of output items, in order.

    Reasoning, messages and items of other kinds (tools on OpenAI's servers, custom tools, MCP) are passed over, and so are
    calls whose output stands among the items already. `TurnUnreadable` where there are no items to read, or a call that is
    still being streamed.
    """
    items, pointer = (cast("list[Any]", turn), "") if isinstance(turn, list) else (_output(turn), "/output")
    objects = {index: cast("dict[str, Any]", item) for index, item in enumerate(items) if isinstance(item, dict)}
    answered = {text_or_none(item.get("call_id")) for item in objects.values() if item.get("type") == "function_call_output"} - {None}
    return [
        _call(item, f"{pointer}/{index}")
        for index, item in objects.items()
        if item.get("type") == "function_call" and text_or_none(item.get("call_id")) not in answered
    ]


def _output(turn: object) -> list[Any]:
    if not isinstance(turn, dict) or "output" not in turn:
        raise TurnUnreadable("a turn is a response with its output, or the list of output items")
    output: Any = cast("dict[str, Any]", turn)["output"]
    if output is None:
        return []
    if not isinstance(output, list):
        raise TurnUnreadable("output of the response is not a list")
    return cast("list[Any]", output)


def _call(item: dict[str, Any], pointer: str) -> TurnCall:
    if item.get("status") == "in_progress":
        raise TurnUnreadable("a call of the turn is not complete; send the turn when the stream has ended")
    name = item.get("name")
    return TurnCall(
        pointer=pointer,
        args_pointer=f"{pointer}/arguments",
        id=text_or_none(item.get("call_id")),
        name=name if isinstance(name, str) else None,
        is_cut_off=item.get("status") == "incomplete",
        echoed={name: item[name] for name in _ECHOED if item.get(name) is not None},
        **blank_or_text(item.get("arguments")),
    )


def write_turn(calls: Sequence[TurnCall], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The ``function_call_output`` items that answer a response, one per call, in order; each output is the result as JSON text."""
    return [
        {"type": "function_call_output"}
        | ({"call_id": call.id} if call.id is not None else {})
        | call.echoed
        | {"output": result_text(answer)}
        for call, answer in zip(calls, answers, strict=True)
    ]
