"""Blanking values at JSON pointers, before anything is stored or shown."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.domain.json_values import is_array, is_object

REDACTED = "[redacted]"


def redact(document: Mapping[str, Any], pointers: Iterable[str]) -> dict[str, Any]:
    """A copy of `document` with the values at `pointers` (RFC 6901; ``*`` stands for every element) blanked."""
    redacted: Any = dict(document)
    for pointer in pointers:
        redacted = _blank(redacted, [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]])
    return dict(redacted)


def _blank(value: Any, path: list[str]) -> Any:
    if not path:
        return REDACTED
    head, rest = path[0], path[1:]
    if is_object(value):
        return {key: _blank(item, rest) if head in (key, "*") else item for key, item in value.items()}
    if is_array(value):
        return [_blank(item, rest) if head in (str(index), "*") else item for index, item in enumerate(value)]
    return value
