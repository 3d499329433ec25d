"""Declarations as a server of the Model Context Protocol lists them (``tools/list``).

Sources: the types of mcp-types 2.3 (``Tool``, ``ToolAnnotations``), protocol revision 2026-07-28 and those before it.
"""

from collections.abc import Iterable
from typing import Any

from gateway.domain.catalogue import Risk, ToolDeclaration


def declarations(tools: Iterable[ToolDeclaration]) -> list[dict[str, Any]]:
    """``[{name, title, description, inputSchema, annotations}]``; `inputSchema` is the tool's own, since MCP speaks JSON Schema 2020-12.

    Annotations are hints for hosts. Whether a call may happen is decided by the gateway, never by them.
    """
    return [
        {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": tool.parameters,
            "annotations": {"readOnlyHint": tool.risk is Risk.READ, "destructiveHint": tool.risk is Risk.IRREVERSIBLE},
        }
        for tool in tools
    ]
