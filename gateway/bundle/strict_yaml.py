"""Strict YAML: the 1.2 core scalars, no anchors, aliases, tags or merge keys, no key twice, and a position for every value."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import yaml

from gateway.domain.canonical import MAX_SAFE_INTEGER

MAX_DEPTH = 64
_MAX_KEY = 200
_QUOTE = "Put text that contains { } [ ] : # or , in quotes, indent with spaces only, and close every bracket."

# https://yaml.org/spec/1.2.2/#103-core-schema
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Place = tuple[int, int]
"""Line and column, both from 1."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A JSON value read from a file, and where each part of it stands."""

    value: Any
    places: Mapping[str, Place]
    """JSON pointer -> place of its key (in a mapping) or of itself."""


class UnreadableError(Exception):
    """A file that cannot be read as one strict document; says where, why, and how to mend it."""

    def __init__(self, place: Place, code: str, message: str, mend: str) -> None:
        super().__init__(message)
        self.place = place
        self.code = code
        self.message = message
        self.mend = mend


def read_yaml(data: bytes) -> Document:
    """Read one YAML document; UnreadableError for anything that two readers could understand differently."""
    builder = _Builder()
    try:
        for event in _parse(decode_text(data)):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        sentence = ", ".join(str(part) for part in (error.context, error.problem) if part)
        raise UnreadableError(place, "yaml-syntax", f"not valid YAML: {sentence}", _QUOTE) from None
    except yaml.YAMLError as error:
        sentence = str(error).splitlines()[0]
        raise UnreadableError(
            (1, 1), "yaml-syntax", f"not valid YAML: {sentence}", "Remove control characters and save the file as UTF-8 text."
        ) from None
    return Document(value=builder.root, places=builder.places)


def decode_text(data: bytes) -> str:
    """The text of a file; UnreadableError when it is not UTF-8."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableError((line, 1), "file-not-utf8", "the file is not UTF-8 text", "Save the file in UTF-8.") from None


def escape_token(key: object) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def _parse(text: str) -> Iterator[Any]:
    parse = cast("Callable[..., Iterator[Any]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType] - untyped in its stubs
    return parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@dataclass
class _Frame:
    container: dict[str, Any] | list[Any]
    pointer: str
    key: str | None = None


@dataclass
class _Builder:
    """Builds the value from parser events; a stack instead of recursion, so that depth is a bound and not a crash."""

    root: Any = None
    places: dict[str, Place] = field(default_factory=lambda: {"": (1, 1)})
    stack: list[_Frame] = field(default_factory=list[_Frame])
    documents: int = 0

    def take(self, event: Any) -> None:
        place = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self._start_document(event, place)
        elif isinstance(event, yaml.AliasEvent):
            _refuse_reference(place, "alias")
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.anchor is not None:
                _refuse_reference(place, "anchor")
            if event.tag is not None:
                raise UnreadableError(
                    place, "yaml-tag", f"tags such as {event.tag} are refused", "Remove the tag; quote a value to make it text."
                )
            self._take_node(event, place)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()

    def _start_document(self, event: Any, place: Place) -> None:
        self.documents += 1
        if self.documents > 1:
            raise UnreadableError(
                place, "yaml-many-documents", "more than one document in the file", "Keep one document per file; remove the line ---."
            )
        if event.version or event.tags:
            raise UnreadableError(place, "yaml-directive", "directives such as %YAML are refused", "Remove the line that starts with %.")

    def _take_node(self, event: Any, place: Place) -> None:
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.container, dict) and top.key is None:
            top.key = self._read_key(event, place, top.container)
            self.places[f"{top.pointer}/{escape_token(top.key)}"] = place
            return
        if isinstance(event, yaml.ScalarEvent):
            self._put(read_scalar(event.value, place, is_plain=bool(event.implicit[0])), place)
            return
        container: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        pointer = self._put(container, place)
        if len(self.stack) >= MAX_DEPTH:
            raise UnreadableError(place, "yaml-too-deep", f"nested deeper than {MAX_DEPTH} levels", "Flatten the document.")
        self.stack.append(_Frame(container, pointer))

    def _put(self, value: Any, place: Place) -> str:
        """Put a finished scalar, or a container that is about to fill, at its position; answers its pointer."""
        if not self.stack:
            self.root = value
            self.places[""] = place
            return ""
        top = self.stack[-1]
        if isinstance(top.container, list):
            pointer = f"{top.pointer}/{len(top.container)}"
            self.places[pointer] = place
            top.container.append(value)
            return pointer
        key = cast("str", top.key)
        top.container[key], top.key = value, None
        return f"{top.pointer}/{escape_token(key)}"

    def _read_key(self, event: Any, place: Place, container: dict[str, Any]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise UnreadableError(
                place,
                "yaml-key",
                "a key must be plain text",
                'Write keys as names; quote text that starts with { or [, such as "{args.x}".',
            )
        key = cast("str", event.value)
        if key == "<<" and event.implicit[0]:
            _refuse_reference(place, "merge key")
        if len(key) > _MAX_KEY or _UNSTORABLE.search(key):
            raise UnreadableError(place, "yaml-key", f"a key is longer than {_MAX_KEY} characters or contains U+0000", "Shorten the key.")
        if key in container:
            raise UnreadableError(place, "yaml-duplicate-key", f"the key `{key}` stands twice in one mapping", "Keep one of the two.")
        return key


def _refuse_reference(place: Place, what: str) -> NoReturn:
    raise UnreadableError(
        place, "yaml-alias", f"anchors, aliases and merge keys are refused (found: {what})", "Write the value out where it is used."
    )


def read_scalar(text: str, place: Place, *, is_plain: bool) -> Any:
    """The value of a scalar by the YAML 1.2 core schema; quoted ones are always text."""
    if _UNSTORABLE.search(text):
        raise UnreadableError(place, "yaml-text", "text contains U+0000 or half a surrogate pair", "Remove the escape.")
    if not is_plain:
        return text
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            return _read_integer(text, base, place)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
        _refuse_number(place)
    if _NOT_FINITE.fullmatch(text):
        _refuse_number(place)
    return text


def _read_integer(text: str, base: int, place: Place) -> int:
    value = int(text, base) if len(text) <= 40 else MAX_SAFE_INTEGER + 1
    if abs(value) > MAX_SAFE_INTEGER:
        _refuse_number(place)
    return value


def _refuse_number(place: Place) -> NoReturn:
    raise UnreadableError(
        place,
        "yaml-number",
        "a number that JSON readers do not agree on (infinite, or beyond 2^53-1)",
        "Quote it to make it text, or use a smaller number.",
    )
