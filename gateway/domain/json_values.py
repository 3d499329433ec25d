"""Telling JSON values apart, in words that the type checker understands too."""

from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a parsed JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a parsed JSON value is an array."""
    return isinstance(value, list)
