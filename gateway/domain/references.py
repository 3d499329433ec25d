"""Template references of a bundle (``args.city``, ``context.requestVersion``, ``subject`` …) and their values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.domain.json_values import is_array, is_object

_IN_PATH = re.compile(r"\{([^{}]*)\}")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""The value of a reference whose field is absent; apart from null."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The values that references can name."""

    args: Mapping[str, Any]
    context: Mapping[str, Any]
    subject: str
    agent: str
    run_id: str
    downstream_key: str | None = None

    def read(self, reference: str) -> Any:
        """The value that `reference` names, or `MISSING`."""
        root, *fields = reference.split(".")
        value: Any = getattr(self, root)
        for field in fields:
            if not is_object(value) or field not in value:
                return MISSING
            value = value[field]
        return value


def path_references(template: str) -> list[str]:
    """The references of a path template such as ``/bookings/{args.bookingRef}``, in order."""
    return _IN_PATH.findall(template)


def read_pointer(document: Any, pointer: str) -> Any:
    """The value at a JSON pointer (RFC 6901), or `MISSING`."""
    value = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if is_object(value) and key in value:
            value = value[key]
        elif is_array(value) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value
