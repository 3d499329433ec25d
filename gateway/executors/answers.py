"""Reading what a tool answered into a JSON value that the ledger can always store.

An effect that happened must never be lost because its answer cannot be written down: PostgreSQL refuses NUL and lone
surrogates, JSON has no NaN, and our own writer takes integers up to 64 bits. All of that is mended here, once, before
anybody looks at the value.
"""

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson

MAX_DEPTH = 64
"""Containers inside containers; deeper answers are unusable."""

_REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1  # what orjson writes as an integer


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """A clean JSON value, or why there is none; the fields of a `Delivery`."""

    value: Any = None
    unusable: Literal["invalid", "too_large"] | None = None


def read_answer(body: bytes) -> Cleaned:
    """The JSON value in the bytes of an answer whose size is already bounded; None for an empty body.

    Strict JSON takes the fast way. What real services send besides (NaN, lone surrogates, control characters, a byte order
    mark, bytes that are not UTF-8) is read tolerantly; what is not JSON at all is ``invalid``.
    """
    if not body.strip():
        return Cleaned()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            value = _TOLERANT.decode(body.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return Cleaned(unusable="invalid")
    return _clean(value, sys.maxsize)


def clean_value(value: object, max_bytes: int) -> Cleaned:
    """A deep, clean copy of what a python tool returned; other types than those of JSON (and tuples) are ``invalid``.

    `max_bytes` bounds the copy's JSON text, and the work: a small graph of shared lists can stand for a huge document.
    """
    cleaned = _clean(value, max_bytes)
    if cleaned.unusable is None and len(orjson.dumps(cleaned.value)) > max_bytes:
        return Cleaned(unusable="too_large")
    return cleaned


def _read_integer(digits: str) -> int | float:
    # Longer ones lose their last digits, as they do in orjson; int() itself refuses past 4300 digits.
    return int(digits) if len(digits) < 20 else float(digits)


_TOLERANT = json.JSONDecoder(strict=False, parse_int=_read_integer, parse_constant=lambda _: None)


class _TooLargeError(Exception):
    pass


class _NotJsonError(Exception):
    pass


def _clean(value: object, budget: int) -> Cleaned:
    try:
        return Cleaned(value=_Copy(budget).of(value, 0))
    except _TooLargeError:
        return Cleaned(unusable="too_large")
    except _NotJsonError:
        return Cleaned(unusable="invalid")


class _Copy:
    """One walk over a value, with what is left of its budget: a lower bound of the bytes that the copy needs as text."""

    def __init__(self, budget: int) -> None:
        self._left = budget

    def of(self, value: object, depth: int) -> Any:
        self._spend(1)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return int(value) if _SMALLEST <= value <= _LARGEST else _as_float(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if depth == MAX_DEPTH:
            raise _NotJsonError
        if isinstance(value, Mapping):
            entries = cast("Mapping[object, object]", value)
            return {self._key(key): self.of(item, depth + 1) for key, item in entries.items()}
        if isinstance(value, list | tuple):
            items = cast("list[object] | tuple[object, ...]", value)
            return [self.of(item, depth + 1) for item in items]
        raise _NotJsonError

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise _NotJsonError
        return self._text(key)

    def _text(self, text: str) -> str:
        self._spend(len(text))
        # str() of a subclass (an enum) may say something else; sub() and join() give its characters.
        return _UNSTORABLE.sub(_REPLACEMENT, text) if not text.isascii() or "\0" in text else "".join(text)

    def _spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise _TooLargeError


def _as_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
