"""Making texts visible: what a person agrees to must not hide anything, and others choose these texts."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.domain.json_values import is_array, is_object

LONG = 200
"""Characters after which a text is marked as long: its end may be out of sight."""

_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_CONTROL = frozenset({"Cc", "Zl", "Zp"})
_INVISIBLE = frozenset({"Cf", "Cn", "Co", "Cs", "Zs"})


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A text inside a JSON value that needs a second look."""

    pointer: str
    """JSON pointer to the value; of a key that is strange itself, with the key made visible."""
    kinds: tuple[str, ...]
    """Some of ``control``, ``direction``, ``invisible``, ``long``."""
    length: int
    """Characters of the text."""
    shown: str
    """The whole text with every such character as an escape."""


def make_visible(text: str) -> str:
    """`text` with control, direction and invisible characters as escapes of 4 or 8 hexadecimal digits, as Python writes them."""
    return "".join(_escape(char) if _kind_of(char) else char for char in text)


def marks_in(value: Any, pointer: str = "") -> Iterator[Mark]:
    """The texts inside a JSON value, keys included, that hold such characters or are long."""
    if is_object(value):
        for key, item in value.items():
            below = f"{pointer}/{make_visible(key).replace('~', '~0').replace('/', '~1')}"
            yield from _mark(key, below)
            yield from marks_in(item, below)
    elif is_array(value):
        for index, item in enumerate(value):
            yield from marks_in(item, f"{pointer}/{index}")
    elif isinstance(value, str):
        yield from _mark(value, pointer)


def _mark(text: str, pointer: str) -> Iterator[Mark]:
    kinds = {kind for char in text if (kind := _kind_of(char))} | ({"long"} if len(text) > LONG else set[str]())
    if kinds:
        yield Mark(pointer=pointer, kinds=tuple(sorted(kinds)), length=len(text), shown=make_visible(text))


def _kind_of(char: str) -> str | None:
    if char.isascii():
        return None if " " <= char <= "~" else "control"
    if char in _DIRECTION:
        return "direction"
    category = unicodedata.category(char)
    if category in _CONTROL:
        return "control"
    return "invisible" if category in _INVISIBLE else None


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
