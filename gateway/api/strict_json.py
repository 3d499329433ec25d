"""Strict JSON for request bodies: what is not JSON is refused, what a model may have written is read and reported.

The border follows the wire: NaN, duplicate keys (compared after unescaping), trailing text and broken UTF-8 are the
sender's fault (`NotJson`). Text that is JSON by RFC 8259 but that nothing behind us can carry is the model's: numbers
beyond a double, lone surrogates, absurd nesting. Such pieces are replaced and named in `Document.defects`, all of them:
the caller must look them up (`Document.defects_below`) before it uses a value, or it would act on a replacement.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, cast

import jiter

from gateway.api.json_reader import (
    LONE_SURROGATE,
    MAX_DEFECTS,
    MAX_DEPTH,
    OUT_OF_RANGE,
    SURROGATE,
    TOO_DEEP,
    Document,
    NotJson,
    extend_pointer,
    read_anything,
)
from gateway.domain.canonical import MAX_SAFE_INTEGER
from gateway.domain.catalogue import FieldError

__all__ = ["MAX_DEFECTS", "MAX_DEPTH", "MAX_KEYS", "MAX_VALUES", "Document", "NotJson", "defects_in", "read_json"]

MAX_KEYS = 1_000
"""Members of one object."""
MAX_VALUES = 10_000
"""Values in all; bounds what validation, canonical form and policy have to walk through."""
HAS_NUL = "text contains U+0000"
TOO_MANY_KEYS = f"object has more than {MAX_KEYS} keys"
TOO_MANY_VALUES = f"more than {MAX_VALUES} values"

_NUMBERS = frozenset({bool, int, float})

# A number that overflows a double has an exponent of three digits or a long run of digits; the rest need no second look.
_MAY_OVERFLOW = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{200}")


def read_json(body: bytes) -> Document:
    """Parse a request body (UTF-8, at most a few hundred KiB); `NotJson` where it is not strict JSON (RFC 8259).

    Numbers beyond the range of a double become 0, lone surrogates U+FFFD, containers nested deeper than 128 null; each
    is a defect of the document. Time is linear in the size of the body, whatever is in it.
    """
    try:
        value = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="none")
    except ValueError:
        # Either not JSON, or JSON beyond jiter's limits. The reader below knows which, and says it without quoting.
        return read_anything(body)
    if _MAY_OVERFLOW.search(body) and _has_overflow(value):
        return read_anything(body)
    return Document(value=value)


def defects_in(value: Any, *, max_depth: int = MAX_DEPTH) -> tuple[FieldError, ...]:
    """What in a parsed JSON value cannot be carried exactly, at most `MAX_DEFECTS` entries, with pointers from `value`.

    Found are: containers deeper than `max_depth`, U+0000 and lone surrogates in texts or keys, numbers beyond 2^53-1
    (integers, and floats that large, which are all integral), more than `MAX_KEYS` keys in one object, and more than
    `MAX_VALUES` values in all.
    """
    if _is_plain(value):
        return ()
    found: list[FieldError] = []
    for count, (item, parents, key) in enumerate(_walk(value, max_depth), start=1):
        message = TOO_MANY_VALUES if count > MAX_VALUES else _defect_of(item, len(parents), max_depth) or _defect_of(key, 0, max_depth)
        if message is not None:
            pointer = "" if count > MAX_VALUES else _pointer((*parents, key)[1:])
            found.append(FieldError(path=pointer, message=message))
        if len(found) >= MAX_DEFECTS or count > MAX_VALUES:
            break
    return tuple(found)


def _is_plain(value: Any) -> bool:
    """Whether a value is a small object of ASCII texts and numbers, as most arguments are: nothing can be wrong with it."""
    if value is None:
        return True
    if type(value) is not dict or len(cast("dict[Any, Any]", value)) > MAX_KEYS:
        return False
    for key, item in cast("dict[str, Any]", value).items():
        if not key.isascii() or "\0" in key:
            return False
        if type(item) is str:
            if not item.isascii() or "\0" in item:
                return False
        elif item is not None and (type(item) not in _NUMBERS or not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER):
            return False
    return True


def _walk(value: Any, max_depth: int) -> Iterator[tuple[Any, tuple[Any, ...], Any]]:
    """Every value in document order with the keys above it and its own; nothing inside containers that are too deep."""
    stack: list[tuple[tuple[Any, ...], Iterator[tuple[Any, Any]]]] = [((), iter([(None, value)]))]
    while stack:
        parents, items = stack[-1]
        for key, item in items:
            yield item, parents, key
            inside = _items(item) if len(parents) < max_depth else None
            if inside is not None:
                stack.append(((*parents, key), inside))
                break
        else:
            stack.pop()


def _items(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """The members of a container with their keys or indexes; None for anything else."""
    if isinstance(value, dict):
        return iter(cast("dict[Any, Any]", value).items())
    return iter(enumerate(cast("list[Any]", value))) if isinstance(value, list) else None


def _defect_of(value: Any, depth: int, max_depth: int) -> str | None:
    if isinstance(value, str):
        if "\0" in value:
            return HAS_NUL
        return LONE_SURROGATE if SURROGATE.search(value) else None
    if isinstance(value, (int, float)):
        return None if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else OUT_OF_RANGE
    if isinstance(value, (dict, list)) and depth >= max_depth:
        return TOO_DEEP if max_depth == MAX_DEPTH else f"nested deeper than {max_depth} levels"
    return TOO_MANY_KEYS if isinstance(value, dict) and len(cast("dict[Any, Any]", value)) > MAX_KEYS else None


def _has_overflow(value: Any) -> bool:
    # jiter has bounded the depth already.
    if isinstance(value, float):
        return math.isinf(value)
    if isinstance(value, int):
        return _overflows(value)
    return any(_has_overflow(item) for _, item in _items(value) or ())


def _overflows(number: int) -> bool:
    try:
        float(number)
    except OverflowError:
        return True
    return False


def _pointer(keys: tuple[Any, ...]) -> str:
    pointer = ""
    for key in keys:
        pointer = extend_pointer(pointer, key)
    return pointer
