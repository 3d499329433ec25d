"""Reads any JSON text iteratively and replaces, pointing out each place, what nothing behind the gateway can carry."""

import json
import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from gateway.domain.catalogue import FieldError
from gateway.domain.json_values import is_object

MAX_DEPTH = 32
"""Containers inside each other in arguments; the arguments object itself is the first."""
MAX_DEFECTS = 20
MAX_POINTER = 300
"""Characters of a JSON pointer that are kept; keys of a model may be long."""

TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
OUT_OF_RANGE = "number out of range"
LONE_SURROGATE = "text contains a lone surrogate"

# Depth that a document may have as a whole. Below jiter's own limit (about 200), above MAX_DEPTH plus any envelope.
_MAX_DOCUMENT_DEPTH = 128
SURROGATE = re.compile("[\ud800-\udfff]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_TOKEN = re.compile(
    r"""[ \t\n\r]*+(?:
      (?P<mark>[\[\]{}:,])
    | (?P<string>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+")
    | (?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+)
    | (?P<word>true|false|null)
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}


_path_of = attrgetter("path")


class NotJson(ValueError):
    """The body is not strict JSON. The text says what and where, and never repeats any of the body."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed body and every piece of it that had to be replaced."""

    value: Any
    defects: tuple[FieldError, ...] = ()
    """JSON pointers from the root of the body, in document order; complete, so that no replacement goes unseen."""

    def defects_below(self, pointer: str) -> tuple[FieldError, ...]:
        """Defects at or under `pointer`, ordered by path, at most `MAX_DEFECTS`, with their paths relative to it."""
        ordered = self._by_path
        start, at_end = (find(ordered, pointer, key=_path_of) for find in (bisect_left, bisect_right))
        # "0" comes right after "/", so this is the range of all that begins with the pointer and a slash.
        below, end = (bisect_left(ordered, pointer + edge, key=_path_of) for edge in "/0")
        found = [*ordered[start:at_end], *ordered[below:end][:MAX_DEFECTS]][:MAX_DEFECTS]
        return tuple(FieldError(path=each.path[len(pointer) :], message=each.message) for each in found)

    @cached_property
    def _by_path(self) -> list[FieldError]:
        # A hostile body has tens of thousands of defects and is asked about 64 calls.
        return sorted(self.defects, key=_path_of)


@dataclass(kw_only=True, slots=True)
class _Frame:
    """A container that is being read. `pointer` is None inside a subtree that was replaced."""

    container: Any  # a dict or a list; each place knows which
    pointer: str | None
    key: str = ""
    has_odd_key: bool = False

    def here(self) -> str | None:
        """The pointer of the value that comes next in this container."""
        if self.pointer is None:
            return None
        return extend_pointer(self.pointer, self.key if isinstance(self.container, dict) else len(self.container))

    def put(self, value: Any) -> None:
        if is_object(self.container):
            self.container[self.key] = value
        else:
            self.container.append(value)


# What may come next.
_VALUE, _ITEM_OR_END, _KEY, _KEY_OR_END, _COLON, _NEXT = range(6)
_EXPECTED = ("a value", "a value or ]", "a key", "a key or }", "a colon", "a comma or an end")


def read_anything(body: bytes) -> Document:
    """Parse any JSON text (UTF-8 bytes) in linear time and without recursion; `NotJson` where it is none."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise NotJson("a byte order mark at byte 0, where JSON begins without one")
    return _Reader(text).read()


class _Reader:
    """Reads JSON text token by token with its own stack: no recursion, no limits but memory, linear time."""

    def __init__(self, text: str) -> None:
        self._text = text
        # A list around the root spares every step the question whether it is at the root.
        self._frame = _Frame(container=[], pointer=None)
        self._above: list[_Frame] = []
        self._defects: list[FieldError] = []

    def read(self) -> Document:
        expected = _VALUE
        for token in _TOKEN.finditer(self._text):
            if token.lastgroup == "end" and expected == _NEXT and not self._above:
                break
            after = self._take(token, expected)
            if after is None:
                raise self._refusal(token, expected)
            expected = after
        return Document(value=self._frame.container[0], defects=tuple(self._defects))

    def _take(self, token: re.Match[str], expected: int) -> int | None:
        """What may come after `token`; None where it may not stand."""
        kind = token.lastgroup
        if kind == "mark":
            return self._mark(token["mark"], expected)
        if kind == "string" and expected in (_KEY, _KEY_OR_END):
            return self._key(token)
        if expected > _ITEM_OR_END:
            return None
        if kind == "string":
            self._frame.put(self._string(token["string"]))
        elif kind == "number":
            self._frame.put(self._number(token["number"]))
        elif kind == "word":
            self._frame.put(_WORDS[token["word"]])
        else:
            return None
        return _NEXT

    def _mark(self, mark: str, expected: int) -> int | None:
        if mark in "[{":
            return self._open({} if mark == "{" else []) if expected <= _ITEM_OR_END else None
        if mark == ":":
            return _VALUE if expected == _COLON else None
        if not self._above:
            return None
        is_object = isinstance(self._frame.container, dict)
        if mark == ",":
            return (_KEY if is_object else _VALUE) if expected == _NEXT else None
        may_end = expected in (_NEXT, _KEY_OR_END if is_object else _ITEM_OR_END)
        return self._close() if may_end and mark == ("}" if is_object else "]") else None

    def _open(self, container: Any) -> int:
        parent = self._frame
        pointer = parent.here() if self._above else ""
        if len(self._above) < _MAX_DOCUMENT_DEPTH:
            parent.put(container)
        elif parent.pointer is None:
            parent.put(None)  # inside a subtree that is dropped already
        else:
            self._note(TOO_DEEP)
            parent.put(None)
            pointer = None
        self._above.append(parent)
        self._frame = _Frame(container=container, pointer=pointer)
        return _KEY_OR_END if isinstance(container, dict) else _ITEM_OR_END

    def _close(self) -> int:
        frame = self._frame
        if frame.has_odd_key:
            # Keys stay as written until now, so that two different lone surrogates do not count as a duplicate.
            items = [(SURROGATE.sub("\ufffd", key), value) for key, value in frame.container.items()]
            frame.container.clear()
            frame.container.update(items)
        self._frame = self._above.pop()
        return _NEXT

    def _key(self, token: re.Match[str]) -> int:
        text = token["string"]
        key: str = json.loads(text) if "\\" in text else text[1:-1]
        frame = self._frame
        if key in frame.container:
            raise NotJson(f"duplicate key at {self._place(token.start('string'))}")
        frame.key = key
        if SURROGATE.search(key):
            frame.has_odd_key = True
            self._note(LONE_SURROGATE)
        return _COLON

    def _string(self, text: str) -> str:
        if "\\" not in text:
            return text[1:-1]
        value: str = json.loads(text)
        if SURROGATE.search(value):
            self._note(LONE_SURROGATE)
            return SURROGATE.sub("\ufffd", value)
        return value

    def _number(self, text: str) -> int | float:
        is_integer = text.lstrip("-").isdecimal()
        # Only what fits a double is made an integer, so its digits are few and int() has no say in what is too long.
        as_float = float(text) if not is_integer or len(text) > 300 else 0.0
        if math.isinf(as_float):
            self._note(OUT_OF_RANGE)
            return 0
        return int(text) if is_integer else as_float

    def _note(self, message: str) -> None:
        pointer = self._frame.here() if self._above else ""
        if pointer is not None:
            self._defects.append(FieldError(path=pointer, message=message))

    def _refusal(self, token: re.Match[str], expected: int) -> NotJson:
        kind = token.lastgroup or "other"
        start = token.start(kind)
        if kind == "end":
            is_empty = not self._above and expected == _VALUE
            return NotJson("the text is empty" if is_empty else f"the text ends where {_EXPECTED[expected]} belongs")
        if kind == "other" and self._text[start] == '"':
            return NotJson(f"text without an end, with a bare control character or with an unknown escape at {self._place(start)}")
        if expected == _NEXT and not self._above:
            return NotJson(f"text after the end of the document at {self._place(start)}")
        return NotJson(f"{_EXPECTED[expected]} expected at {self._place(start)}")

    def _place(self, position: int) -> str:
        line = self._text.count("\n", 0, position) + 1
        return f"line {line}, column {position - self._text.rfind(chr(10), 0, position)}"


def extend_pointer(pointer: str, key: object) -> str:
    """`pointer` and one more step (RFC 6901), clipped, and with nothing in it that a log or PostgreSQL refuses."""
    step = str(key)[:MAX_POINTER].replace("~", "~0").replace("/", "~1")
    return (pointer + "/" + _UNPRINTABLE.sub("\ufffd", step))[:MAX_POINTER]
