"""Rego that tells how far each of its rule bodies came: a marker stands before the first statement and behind each one.

A marker is a line of its own that is always true. The engine's coverage tells which lines it evaluated; so a marker that
was reached says that every statement before it held. Coverage of the plain source could not: a statement counts there
as covered once it is tried, whether it held or not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gateway.policy.checks.syntax import Module, Node, kind_of, offset_of
from gateway.policy.sandbox import Sandbox

_MARKER = b"1 == 1"
_QUOTES = b'"`'
Reached = Mapping[str, frozenset[int]]
"""File -> lines (from 1) of its traced source that were evaluated."""


@dataclass(frozen=True)
class Statement:
    """One statement of a body."""

    line: int
    text: str
    node: Node


@dataclass(frozen=True)
class Body:
    """One body of a rule: an ``else`` branch is a body too."""

    module: Module
    rule: str
    effect_code: str | None
    """The reason code in the head, where it is a literal in a set of reasons."""
    offset: int
    statements: tuple[Statement, ...]
    markers: tuple[int, ...]
    """Lines of the traced source: the first says that it was tried, the one behind the last statement that it fired."""
    is_function: bool

    @property
    def line(self) -> int:
        """Where it begins, from 1."""
        return self.module.place(self.offset)[0]

    def held(self, lines: frozenset[int]) -> int | None:
        """How many of its statements held at best; None where it was never tried."""
        reached = [number for number, marker in enumerate(self.markers) if marker in lines]
        return max(reached) if reached else None

    def has_fired(self, lines: frozenset[int]) -> bool:
        """Whether all of its statements held."""
        return self.markers[-1] in lines


@dataclass(frozen=True)
class Traced:
    """A module with markers, and the bodies that they stand in."""

    file: str
    source: str
    bodies: tuple[Body, ...]


def parse_modules(sandbox: Sandbox, sources: Mapping[str, str]) -> list[Module]:
    """The syntax of modules that are known to parse."""
    return [Module(each["file"], sources[each["file"]], each["module"]) for each in sandbox.parse(sources) if "module" in each]


def trace(module: Module, source: str) -> Traced:
    """The module with its markers. Every line end that is added stands between statements, so that nothing else changes."""
    content = source.encode()
    insertions: list[tuple[int, bytes]] = []
    drafts: list[tuple[str, str | None, int, list[Statement], list[int], bool]] = []
    for rule in module.rules:
        for number, body in enumerate(rule.bodies):
            nodes = body["query"]["stmts"]
            if not nodes:
                continue
            start, end = body["query"]["span"]["start"], body["query"]["span"]["end"]
            starts = [_widen_start(content, node["span"]["start"]) for node in nodes]
            is_braced = content[start : start + 1] == b"{" and starts[0] > start and content[end - 1 : end] == b"}"
            end = end - 1 if is_braced else _widen_end(content, end)
            places = [*starts, end]
            opening, closing = (b"", b"") if is_braced else (b"{", b"}")
            for index, place in enumerate(places):
                mark = b"\n" + _MARKER + b"\n"
                insertions.append((place, (opening if index == 0 else b"") + mark + (closing if index == len(nodes) else b"")))
            statements = [
                Statement(module.place(begin)[0], _text(content[begin:following]), node)
                for begin, following, node in zip(starts, places[1:], nodes, strict=True)
            ]
            offset = rule.offset if number == 0 else body["span"]["start"]
            drafts.append((".".join(rule.name), _code_of(rule.head, rule.form), offset, statements, places, rule.form == "function"))
    traced, lines = _insert(content, insertions)
    bodies = tuple(
        Body(module, name, code, offset, tuple(statements), tuple(lines[place] for place in places), is_function)
        for name, code, offset, statements, places, is_function in drafts
    )
    return Traced(module.file, traced.decode(), bodies)


def cut(module_source: str, node: Node) -> str:
    """The source of an expression, quotes of strings included."""
    content = module_source.encode()
    _, inner = kind_of(node)
    return content[offset_of(node) : _widen_end(content, inner["span"]["end"])].decode()


def trace_all(sandbox: Sandbox, sources: Mapping[str, str]) -> list[Traced]:
    """All modules with markers. One whose traced form does not parse stays as it is, without bodies."""
    plain = parse_modules(sandbox, sources)
    traced = [trace(module, sources[module.file]) for module in plain]
    broken = {each["file"] for each in sandbox.parse({each.file: each.source for each in traced}) if "error" in each}
    return [Traced(each.file, sources[each.file], ()) if each.file in broken else each for each in traced]


def bodies_of(traced: Iterable[Traced]) -> list[Body]:
    """All bodies."""
    return [body for each in traced for body in each.bodies]


def _insert(content: bytes, insertions: list[tuple[int, bytes]]) -> tuple[bytes, dict[int, int]]:
    """The content with insertions, and the line on which the marker of each place stands."""
    parts: list[bytes] = []
    lines: dict[int, int] = {}
    line, done = 1, 0
    for place, text in sorted(insertions, key=lambda each: each[0]):
        before = content[done:place]
        line += before.count(b"\n")
        lines[place] = line + 1
        line += text.count(b"\n")
        parts += (before, text)
        done = place
    return b"".join((*parts, content[done:])), lines


def _widen_start(content: bytes, start: int) -> int:
    # A string's span leaves out its quotes, a parenthesis may stand before the first operand.
    while True:
        before = content[:start].rstrip(b" \t")
        if start and content[start - 1 : start] in (b'"', b"`"):
            start -= 1
        elif before.endswith(b"("):
            start = len(before) - 1
        else:
            return start


def _widen_end(content: bytes, end: int) -> int:
    if content[end : end + 1] and content[end] in _QUOTES:
        end += 1
    while (rest := content[end:].lstrip(b" \t")).startswith(b")") and content[:end].rsplit(b"\n", 1)[-1].count(b"("):
        line = content[:end].rsplit(b"\n", 1)[-1]
        if line.count(b"(") <= line.count(b")"):
            break
        end = len(content) - len(rest) + 1
    return end


def _text(statement: bytes) -> str:
    lines = [line.split(" #", 1)[0].rstrip() if line.lstrip().startswith("#") else line for line in statement.decode().splitlines()]
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(kept).strip().rstrip(";").strip()


def _code_of(head: Node, form: str) -> str | None:
    if form != "set":
        return None
    kind, content = kind_of(head["key"])
    if kind == "Object":
        for _, key, value in content["fields"]:
            if kind_of(key)[1].get("value") == "reason_code":
                kind, content = kind_of(value)
                break
    return content["value"] if kind in ("String", "RawString") else None
