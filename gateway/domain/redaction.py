"""Blanking values at JSON pointers, before anything is stored or shown."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.domain.json_values import is_array, is_object

REDACTED = "[redacted]"


def redact(document: Mapping[str, Any], pointers: Iterable[str], blank: Callable[[Any], Any] = lambda _: REDACTED) -> dict[str, Any]:
    """A copy of `document` with the values at `pointers` (RFC 6901; ``*`` stands for every element) replaced by `blank` of them."""
    redacted: Any = dict(document)
    for pointer in pointers:
        redacted = _replace(redacted, [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]], blank)
    return dict(redacted)


def differences(one: Any, other: Any, pointer: str = "") -> list[str]:
    """JSON pointers of the values that differ between two documents of equal shape."""
    if is_object(one) and is_object(other):
        items = [(key.replace("~", "~0").replace("/", "~1"), item, other[key]) for key, item in one.items()]
    elif is_array(one) and is_array(other):
        items = [(str(index), item, other[index]) for index, item in enumerate(one)]
    else:
        return [] if one == other else [pointer]
    return [found for key, item, twin in items for found in differences(item, twin, f"{pointer}/{key}")]


def _replace(value: Any, path: list[str], blank: Callable[[Any], Any]) -> Any:
    if not path:
        return blank(value)
    head, rest = path[0], path[1:]
    if is_object(value):
        return {key: _replace(item, rest, blank) if head in (key, "*") else item for key, item in value.items()}
    if is_array(value):
        return [_replace(item, rest, blank) if head in (str(index), "*") else item for index, item in enumerate(value)]
    return value
