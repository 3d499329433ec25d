"""Gemini's function calling (``generateContent``): declarations for its SDK, calls out of a turn, answers into a turn.

Sources: the types of google-genai 2.30 to 3.6 and https://ai.google.dev/gemini-api/docs/function-calling.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from pydantic import BaseModel

from gateway.dialects.portable_schema import GEMINI, portable_parameters
from gateway.dialects.turn import TurnCall, TurnUnreadable, result_document, text_or_none
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.result import Answer

MAX_DECLARATIONS = 512
"""Declarations in one ``Tool`` (types.Tool.function_declarations); longer lists become several of them."""

# Gemini takes a `$ref` inside a function response for the name of an attached part, and refuses the whole request
# when there is none of that name. See https://github.com/vercel/ai/issues/14369
_REFERENCE_KEYS = frozenset({"$ref", "$defs"})


def declarations(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """What ``GenerateContentConfig(tools=…)`` takes: ``[{"function_declarations": [{name, description, …}]}]``.

    Parameters are the subset of JSON Schema that Gemini reads, see `portable_parameters`; calls are still validated
    with the tool's own schema. A tool without parameters has no ``parameters_json_schema``, since Gemini refuses
    objects without properties when it is told to call (https://github.com/googleapis/python-genai/issues/981).
    """
    all_tools = iter(tools)
    lists: list[dict[str, Any]] = []
    while chunk := list(islice(all_tools, MAX_DECLARATIONS)):
        lists.append({"function_declarations": [_declaration(tool) for tool in chunk]})
    return lists


def _declaration(tool: ToolDeclaration) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name, "description": tool.description}
    parameters = portable_parameters(tool.parameters, GEMINI)
    if parameters["properties"]:
        declaration["parameters_json_schema"] = parameters
    return declaration


def config(declared: Iterable[dict[str, Any]], *, tools: Iterable[Any] = (), **fields: Any) -> dict[str, Any]:
    """The ``config`` of ``generate_content``: `declared` and other `tools`, with automatic function calling switched off.

    With it Google's client would run functions itself, past any gateway. So TypeError for a function or an MCP session
    among `tools`, and for the fields that would switch it on.
    """
    others = list(tools)
    for tool in others:
        if not isinstance(tool, Mapping | BaseModel):
            raise TypeError(
                f"{type(tool).__name__} in `tools`: Google's client would run it past the gateway. "
                "Declare it in the bundle, as a tool with `execute: {python: …}` or `execute: {client: …}`."
            )
    if "automatic_function_calling" in fields:
        raise TypeError("automatic_function_calling stays switched off: Google's client would run functions past the gateway")
    return {"tools": [*declared, *others], "automatic_function_calling": {"disable": True}, **fields}


def read_turn(turn: object) -> list[TurnCall]:
    """The calls of a model's turn, in order: a ``generateContent`` response (its first candidate) or a ``Content``.

    Both spellings of the SDK are read (``functionCall``, ``function_call``). Thoughts, their signatures and calls that
    Gemini's own servers performed (``toolCall``) are passed over. A call of a strange shape is still a call, so that it
    gets an answer. `TurnUnreadable` where the turn has no parts to read, or a call that is still being streamed.
    """
    content, pointer = _content(turn)
    parts = content.get("parts")
    if parts is None:
        return []  # a model may stop without saying anything
    if not isinstance(parts, list):
        raise TurnUnreadable("parts of the turn are not a list")
    calls: list[TurnCall] = []
    for index, part in enumerate(cast("list[Any]", parts)):
        for spelling in ("functionCall", "function_call"):
            written = cast("dict[str, Any]", part).get(spelling) if isinstance(part, dict) else None
            if written is not None:
                calls.append(_call(written, f"{pointer}/parts/{index}/{spelling}"))
    return calls


def _content(turn: object) -> tuple[dict[str, Any], str]:
    if not isinstance(turn, dict):
        raise TurnUnreadable("a turn is an object: a generateContent response or a Content")
    fields = cast("dict[str, Any]", turn)
    if "candidates" not in fields:
        if "parts" not in fields:
            raise TurnUnreadable("the turn has neither candidates nor parts")
        return fields, ""
    candidates: Any = fields["candidates"]
    if not isinstance(candidates, list | None):
        raise TurnUnreadable("candidates of the turn are not a list")
    if not candidates:
        return {}, ""
    first: object = cast("list[object]", candidates)[0]
    if not isinstance(first, dict):
        raise TurnUnreadable("the first candidate is not an object")
    content: Any = cast("dict[str, Any]", first).get("content")
    if content is None:
        return {}, ""  # stopped before its first word
    if not isinstance(content, dict):
        raise TurnUnreadable("content of the first candidate is not an object")
    return cast("dict[str, Any]", content), "/candidates/0/content"


def _call(written: object, pointer: str) -> TurnCall:
    if not isinstance(written, dict):
        return TurnCall(pointer=pointer, args_pointer=f"{pointer}/args")
    call = cast("dict[str, Any]", written)
    unfinished = ("willContinue", "will_continue", "partialArgs", "partial_args")
    if any(call.get(field) for field in unfinished):
        raise TurnUnreadable("a call of the turn is not complete; send the turn when the stream has ended")
    name = call.get("name")
    return TurnCall(
        pointer=pointer,
        args_pointer=f"{pointer}/args",
        id=text_or_none(call.get("id")),
        name=name if isinstance(name, str) else None,
        args=call.get("args"),
    )


def write_turn(calls: Sequence[TurnCall], answers: Sequence[Answer]) -> dict[str, Any]:
    """The one user ``Content`` that answers a turn: one ``functionResponse`` per call, in order.

    ``response`` is the whole result object; ids are copied only where the model gave one. ValueError where there is not
    exactly one answer per call, since Gemini refuses the conversation from then on.
    """
    if len(calls) != len(answers):
        raise ValueError(f"{len(calls)} calls need as many answers, not {len(answers)}")
    return {"role": "user", "parts": [{"functionResponse": _response(call, answer)} for call, answer in zip(calls, answers, strict=True)]}


def _response(call: TurnCall, answer: Answer) -> dict[str, Any]:
    identity = {"id": call.id} if call.id is not None else {}
    return identity | {"name": call.name or "", "response": response_object(answer)}


def response_object(answer: Answer) -> dict[str, Any]:
    """The result as an object that Gemini can read, without keys that it would take for references."""
    return {name: _without_references(value) for name, value in result_document(answer).items()}


def _without_references(value: Any) -> Any:
    """`value`, or its JSON text where a key in it would be read as a reference."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            if not _REFERENCE_KEYS.isdisjoint(members):
                return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            stack.extend(members.values())
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))
    return value
