"""Gemini's Interactions API: declarations, calls out of an interaction, answers into the next one's input.

Sources: the types of google-genai 2.30 to 3.6 (``client.interactions``).
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from gateway.dialects.gemini import response_object
from gateway.dialects.portable_schema import GEMINI, portable_parameters
from gateway.dialects.turn import ERROR_STATUSES, TurnCall, TurnUnreadable, text_or_none
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.result import Answer


def declarations(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """What ``client.interactions.create(tools=…)`` takes: ``[{"type": "function", name, description, parameters}]``."""
    return [_declaration(tool) for tool in tools]


def _declaration(tool: ToolDeclaration) -> dict[str, Any]:
    declaration: dict[str, Any] = {"type": "function", "name": tool.name, "description": tool.description}
    parameters = portable_parameters(tool.parameters, GEMINI)
    if parameters["properties"]:
        declaration["parameters"] = parameters
    return declaration


def read_turn(turn: object) -> list[TurnCall]:
    """The calls of an ``Interaction`` (its ``steps``) or of a bare list of steps, in order.

    Thoughts and what Google's own servers do (searches, code, MCP) are passed over, and so are calls whose result stands
    among the steps already. `TurnUnreadable` where there are no steps to read.
    """
    steps, pointer = (cast("list[Any]", turn), "") if isinstance(turn, list) else (_steps(turn), "/steps")
    objects = {index: cast("dict[str, Any]", step) for index, step in enumerate(steps) if isinstance(step, dict)}
    answered = {text_or_none(step.get("call_id")) for step in objects.values() if step.get("type") == "function_result"} - {None}
    return [
        _call(step, f"{pointer}/{index}")
        for index, step in objects.items()
        if step.get("type") == "function_call" and text_or_none(step.get("id")) not in answered
    ]


def _steps(turn: object) -> list[Any]:
    if not isinstance(turn, dict) or "steps" not in turn:
        raise TurnUnreadable("a turn is an interaction with its steps, or the list of steps")
    steps: Any = cast("dict[str, Any]", turn)["steps"]
    if steps is None:
        return []
    if not isinstance(steps, list):
        raise TurnUnreadable("steps of the interaction are not a list")
    return cast("list[Any]", steps)


def _call(step: dict[str, Any], pointer: str) -> TurnCall:
    name = step.get("name")
    return TurnCall(
        pointer=pointer,
        args_pointer=f"{pointer}/arguments",
        id=text_or_none(step.get("id")),
        name=name if isinstance(name, str) else None,
        args=step.get("arguments"),
    )


def write_turn(calls: Sequence[TurnCall], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The ``function_result`` steps that answer an interaction, one per call, in order: the next interaction's ``input``."""
    return [_result(call, answer) for call, answer in zip(calls, answers, strict=True)]


def _result(call: TurnCall, answer: Answer) -> dict[str, Any]:
    identity = {"call_id": call.id} if call.id is not None else {}
    is_error = answer.result.status in ERROR_STATUSES
    return {"type": "function_result"} | identity | {"name": call.name or "", "result": response_object(answer), "is_error": is_error}
