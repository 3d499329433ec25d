"""The dialects by the names that the wire gives them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from gateway.dialects import anthropic, gemini, interactions, json_format, mcp, openai, openai_chat
from gateway.dialects.turn import Turn
from gateway.domain.catalogue import ToolDeclaration

Declare = Callable[[Iterable[ToolDeclaration]], list[dict[str, Any]]]
Read = Callable[[object], Turn]


def _read_gemini(turn: object) -> Turn:
    """Either of Gemini's two APIs; the turn itself tells which. Raises TurnUnreadable."""
    api = interactions if _is_interaction(turn) else gemini
    return Turn(calls=tuple(api.read_turn(turn)), write=api.write_turn)


def _is_interaction(turn: object) -> bool:
    if isinstance(turn, dict):
        fields = cast("dict[str, Any]", turn)
        return "steps" in fields and "candidates" not in fields and "parts" not in fields
    return isinstance(turn, list)


def _read_openai(turn: object) -> Turn:
    return Turn(calls=tuple(openai.read_turn(turn)), write=openai.write_turn)


def _read_openai_chat(turn: object) -> Turn:
    return Turn(calls=tuple(openai_chat.read_turn(turn)), write=openai_chat.write_turn)


def _read_anthropic(turn: object) -> Turn:
    return Turn(calls=tuple(anthropic.read_turn(turn)), write=anthropic.write_turn)


DIALECTS: Mapping[str, Read] = {
    "gemini": _read_gemini,
    "openai": _read_openai,
    "openai-chat": _read_openai_chat,
    "anthropic": _read_anthropic,
}
"""How a turn is read, by ``?dialect=``. Each raises TurnUnreadable."""

FORMATS: Mapping[str, Declare] = {
    "json": json_format.describe_tools,
    "gemini": gemini.declarations,
    "gemini-interactions": interactions.declarations,
    "openai": openai.declarations,
    "openai-chat": openai_chat.declarations,
    "anthropic": anthropic.declarations,
    "mcp": mcp.declarations,
}
"""How tools are declared, by ``?format=``."""
