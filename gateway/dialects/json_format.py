"""Declarations without any vendor's dialect: ``GET /v1/tools?format=json``."""

from collections.abc import Iterable
from typing import Any

from gateway.domain.catalogue import ToolDeclaration


def describe_tools(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """``[{name, title, description, risk, parameters}]`` in the order given; `parameters` is the tool's own JSON Schema."""
    return [
        {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "risk": tool.risk.value,
            "parameters": tool.parameters,
        }
        for tool in tools
    ]
