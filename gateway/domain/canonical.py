"""Canonical JSON (RFC 8785) and the digests that are taken over it."""

import hashlib
import math
import re
from typing import Any

import orjson
import rfc8785

from gateway.domain.json_values import is_array, is_object

MAX_SAFE_INTEGER = 2**53 - 1

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
# Where orjson and RFC 8785 may differ: floats, long integers, and null, as which orjson writes NaN. Inside a text it is a false
# alarm, and only costs the longer way.
_IN_QUESTION = re.compile(rb"null|(?:^|[:\[,])-?[0-9]+[.e]|[0-9]{16}")


def canonical_json(value: Any) -> bytes:
    """The RFC 8785 form of a JSON value; ValueError for what I-JSON cannot carry (NaN, big integers, lone surrogates).

    orjson writes the same bytes where no float and no non-ASCII key occurs; a property test holds it to rfc8785.
    """
    try:
        written = orjson.dumps(value, option=_SORTED)
    except TypeError:
        pass  # not JSON, or not I-JSON: rfc8785 knows which
    else:
        if written.isascii() and not _IN_QUESTION.search(written):
            return written
    if _is_plain(value):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        msg = "not representable as canonical JSON"
        raise ValueError(msg) from error


def digest(label: str, value: Any) -> bytes:
    """SHA-256 of a label, a NUL and the canonical form of `value` (32 bytes)."""
    return hashlib.sha256(label.encode() + b"\0" + canonical_json(value)).digest()


def integral_floats_as_integers(value: Any) -> Any:
    """The same JSON value with ``3.0`` as ``3`` wherever a float is integral and exact (|v| <= 2^53-1)."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() and abs(value) <= MAX_SAFE_INTEGER else value
    if is_object(value):
        return {key: integral_floats_as_integers(item) for key, item in value.items()}
    if is_array(value):
        return [integral_floats_as_integers(item) for item in value]
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii()
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    if is_object(value):
        return all(key.isascii() and _is_plain(item) for key, item in value.items())
    return is_array(value) and all(map(_is_plain, value))
