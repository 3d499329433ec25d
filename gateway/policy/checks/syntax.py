"""A parsed module and the only place that knows how regorus writes its syntax tree (version 1 of `get_ast_as_json`).

An expression is a dict with one key, its kind: ``{"RefDot": {"span": …, "refr": …, "field": […]}}``. Offsets are bytes;
a string's span leaves out its quotes; lines and columns of the tree count a tab as four, so they are not used.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gateway.domain.findings import Finding
from gateway.policy.modules import TEST_SUFFIX

Node = dict[str, Any]
Path = tuple[str | None, ...]
"""A resolved reference: its root and its steps; None for a step that is known only at evaluation."""

_ERROR_PLACE = re.compile(r"--> (?P<file>.*):(?P<line>\d+):(?P<column>\d+)\n")
_STRINGS = ("String", "RawString")


@dataclass(frozen=True)
class Rule:
    """One rule as written: its head, and its bodies with ``else`` ones after the first."""

    name: tuple[str, ...]
    """The static part of its head: ``("allow",)``, ``("limits", "daily")``."""
    form: str
    """``set`` (contains), ``function``, ``value`` or ``default``."""
    head: Node
    bodies: list[Node]
    offset: int

    @property
    def arguments(self) -> list[Node]:
        """The parameters of a function, as expressions."""
        return self.head.get("args") or []

    @property
    def values(self) -> list[Node]:
        """The expressions of the head that are evaluated with the body: key, value, and dynamic steps of the name."""
        assign = self.head.get("assign")
        found = [self.head.get("key"), self.head.get("value"), assign and assign["value"], *_dynamic_steps(self.head["refr"])]
        return [node for node in found if node]


class Module:
    """One module of a bundle."""

    def __init__(self, file: str, source: str, tree: Node) -> None:
        self.file = file
        self._bytes = source.encode()
        self._tree = tree["ast"]
        self.is_test = file.endswith(TEST_SUFFIX)

    @cached_property
    def package(self) -> tuple[str, ...]:
        """The package's path, such as ``("policies", "travel", "search")``."""
        return static_path(self._tree["package"]["refr"])

    @cached_property
    def aliases(self) -> dict[str, Path]:
        """Names that imports bring in, with what they stand for."""
        return {alias: path for path, alias, _ in self.imports if path[0] in ("input", "data")}

    @cached_property
    def imports(self) -> list[tuple[tuple[str, ...], str, int]]:
        """(path, name it goes by, offset) of each import."""
        found: list[tuple[tuple[str, ...], str, int]] = []
        for node in self._tree["imports"]:
            path = static_path(node["refr"])
            alias = self.text(node["as"]) if node.get("as") else path[-1]
            found.append((path, alias, offset_of(node["refr"])))
        return found

    @cached_property
    def rules(self) -> list[Rule]:
        """All rules, defaults included."""
        return [_read_rule(node) for node in self._tree["rules"]]

    def text(self, span: Node) -> str:
        """The source of a span."""
        return self._bytes[span["start"] : span["end"]].decode()

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column (characters), from 1, of a byte offset."""
        before = self._bytes[:offset]
        start = before.rfind(b"\n") + 1
        return before.count(b"\n") + 1, len(before[start:].decode(errors="replace")) + 1

    def finding(self, offset: int, code: str, message: str, mend: str) -> Finding:
        """A finding at a byte offset of this module."""
        line, column = self.place(offset)
        return Finding(file=self.file, line=line, column=column, code=code, message=message, mend=mend)


def syntax_error(file: str, source: str, text: str) -> Finding:
    """The finding for a module that regorus could not parse."""
    sentence = text.rsplit("error:", 1)[-1].strip().split("\n", 1)[0]
    place = _ERROR_PLACE.search(text)
    line = int(place["line"]) if place else 0
    column = _column(source.split("\n")[line - 1], int(place["column"])) if place and line <= source.count("\n") + 1 else 0
    return Finding(
        file=file,
        line=line,
        column=column,
        code="rego-syntax",
        message=f"Does not parse: {sentence}.",
        mend="Correct the syntax at this place.",
    )


def kind_of(node: Node) -> tuple[str, Node]:
    """An expression's kind and content."""
    ((kind, content),) = node.items()
    return kind, content


def offset_of(node: Node) -> int:
    """Where an expression begins, the quote of a string included."""
    kind, content = kind_of(node)
    if kind in ("RefDot", "RefBrack"):  # The span of some references begins late; their head's does not.
        return offset_of(content["refr"])
    return content["span"]["start"] - (1 if kind in _STRINGS else 0)


def literal_string(node: Node) -> str | None:
    """The value of a string literal; None for any other expression."""
    kind, content = kind_of(node)
    return content["value"] if kind in _STRINGS else None


def modifiers(statement: Node) -> list[Node]:
    """The ``with`` parts of a statement."""
    return statement.get("with_mods") or []


def static_path(node: Node) -> tuple[str, ...]:
    """The leading static steps of a reference such as a package's, an import's or a rule's name."""
    kind, content = kind_of(node)
    if kind == "Var":
        return (content["value"],)
    if kind == "RefDot":
        return (*static_path(content["refr"]), content["field"][1])
    if kind == "RefBrack":
        head, step = static_path(content["refr"]), literal_string(content["index"])
        whole = len(head) == _length(content["refr"])
        return (*head, step) if step is not None and whole else head
    return ()


def children(node: Any) -> Iterator[Node]:
    """The expressions directly below any part of the tree that is not an expression itself, or below an expression."""
    if isinstance(node, list):
        for item in node:  # pyright: ignore[reportUnknownVariableType]
            yield from _expressions(item)
    elif isinstance(node, dict):
        for value in node.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _expressions(value)


def _expressions(part: Any) -> Iterator[Node]:
    if isinstance(part, dict) and len(part) == 1 and next(iter(part)) in EXPRESSIONS:  # pyright: ignore[reportUnknownArgumentType]
        yield part  # pyright: ignore[reportUnknownVariableType]
    else:
        yield from children(part)


EXPRESSIONS = frozenset({
    "String", "RawString", "Number", "Bool", "Null", "Var", "Array", "Set", "Object", "ArrayCompr", "SetCompr", "ObjectCompr",
    "Call", "UnaryExpr", "RefDot", "RefBrack", "BinExpr", "BoolExpr", "ArithExpr", "AssignExpr", "Membership", "OrExpr",
})  # fmt: skip
COMPREHENSIONS = frozenset({"ArrayCompr", "SetCompr", "ObjectCompr"})


def _length(node: Node) -> int:
    kind, content = kind_of(node)
    return 1 + _length(content["refr"]) if kind in ("RefDot", "RefBrack") else 1


def _dynamic_steps(node: Node) -> list[Node]:
    kind, content = kind_of(node)
    if kind not in ("RefDot", "RefBrack"):
        return []
    own = [content["index"]] if kind == "RefBrack" and literal_string(content["index"]) is None else []
    return [*_dynamic_steps(content["refr"]), *own]


def _read_rule(node: Node) -> Rule:
    kind, content = kind_of(node)
    if kind == "Default":
        return Rule(static_path(content["refr"]), "default", content, [], content["span"]["start"])
    form, head = kind_of(content["head"])
    forms = {"Set": "set", "Func": "function"}
    return Rule(static_path(head["refr"]), forms.get(form, "value"), head, content["bodies"], content["span"]["start"])


def _column(line: str, column: int) -> int:
    seen = 1
    for index, character in enumerate(line):
        if seen >= column:
            return index + 1
        seen += 4 if character == "\t" else 1
    return len(line) + 1
