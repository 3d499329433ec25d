"""Constructs about which the engines agree for some values only: refused where others are possible."""

from collections.abc import Iterator

from gateway.domain.findings import Finding
from gateway.policy.checks.shapes import COLLECTIONS, FRACTION, LIST, SET, TEXT, Scope, Shapes
from gateway.policy.checks.syntax import Node, children, kind_of, literal_string, offset_of

_TEXT_FIRST = {
    "startswith": {TEXT},
    "endswith": {TEXT},
    "strings.any_prefix_match": {TEXT, LIST, SET},
    "strings.any_suffix_match": {TEXT, LIST, SET},
}
"""OPA looks rules up by these without evaluating them: for another value it finds none where the embedded engine has an error."""


def check_agreement(scope: Scope, shapes: Shapes) -> Iterator[Finding]:
    """Findings on one rule. Tests run in one engine only."""
    if scope.module.is_test:
        return
    yield from _check_head(scope)
    for collection in scope.iterated:
        if not shapes.of(collection, scope).kinds <= COLLECTIONS:
            yield scope.module.finding(
                offset_of(collection),
                "rego-iteration",
                "What is iterated over may be something else than a list, set or object: an error in one engine, nothing in the other.",
                "Iterate over what a schema declares as a list or object.",
            )
    for node in scope.nodes:
        kind, content = kind_of(node)
        if kind == "ArithExpr":
            yield from _check_arithmetic(content, scope, shapes)
        elif kind == "AssignExpr":
            yield from _check_patterns(content, scope)
        elif kind == "Call":
            yield from _check_call(content, scope, shapes)


def _check_head(scope: Scope) -> Iterator[Finding]:
    kind, head = kind_of(scope.rule.head["refr"])
    if scope.rule.form == "value" and kind == "RefBrack" and literal_string(head["index"]) is None:
        yield scope.module.finding(
            scope.rule.offset,
            "rego-partial-object",
            "Two values for one key are an error in one engine even where nobody asks for that key.",
            "Write the object as a comprehension: o := {key: value | …}.",
        )


def _check_patterns(content: Node, scope: Scope) -> Iterator[Finding]:
    for side in (content["lhs"], content["rhs"]):
        if "Object" in side and any(_has_name(child, scope) for child in children(side)):
            yield scope.module.finding(
                offset_of(side),
                "rego-object-pattern",
                "An object with further fields fits the pattern in one engine and not in the other.",
                "Name the fields instead: x := object.field.",
            )


def _check_arithmetic(content: Node, scope: Scope, shapes: Shapes) -> Iterator[Finding]:
    for side in ("lhs", "rhs"):
        if FRACTION in shapes.of(content[side], scope).kinds and "Number" not in content[side]:
            yield scope.module.finding(
                offset_of(content[side]),
                "rego-fraction",
                "This number may have a fraction, with which one of the engines calculates inexactly.",
                "Declare it as an integer in a smaller unit, or use input.cost (micro-units); comparing it is fine.",
            )


def _check_call(content: Node, scope: Scope, shapes: Shapes) -> Iterator[Finding]:
    name, parameters = _name(content["fcn"]), content["params"]
    if not parameters:
        return
    first = parameters[0]
    find = scope.module.finding
    if name in ("sum", "product") and FRACTION in shapes.of(first, scope).items.kinds:
        yield find(
            offset_of(first),
            "rego-fraction",
            "There may be a fraction among these numbers, with which one of the engines calculates inexactly.",
            "Declare them as integers in a smaller unit.",
        )
    if name == "count" and TEXT in shapes.of(first, scope).kinds:
        yield find(
            offset_of(first),
            "rego-count",
            "This may be a text, and the engines count its characters differently.",
            "Count what a schema declares as a list or object; limit the length of texts by maxLength in the tool's schema.",
        )
    if name in _TEXT_FIRST and not shapes.of(first, scope).kinds <= _TEXT_FIRST[name]:
        yield find(
            offset_of(first),
            "rego-text",
            f"{name} is an error in one engine and false in the other for what is no text, which this may be.",
            "Use what a schema declares as a string.",
        )
    if name == "sprintf" and len(parameters) == 2 and "Array" not in parameters[1]:
        yield find(offset_of(parameters[1]), "rego-sprintf", "The values are not written out as a list.", "Write [a, b] at this place.")
    if name == "indexof" and len(parameters) == 2 and not literal_string(parameters[1]):
        yield find(
            offset_of(parameters[1]),
            "rego-indexof",
            "An empty text is found in one engine and an error in the other.",
            "Search for a literal text.",
        )
    if name == "substring" and len(parameters) == 3 and not all(_is_integer(parameter) for parameter in parameters[1:]):
        yield find(
            offset_of(parameters[1]),
            "rego-substring",
            "Places that are no whole numbers are an error in one engine only.",
            "Write both as literal integers.",
        )


def _name(node: Node) -> str:
    kind, content = kind_of(node)
    if kind == "Var":
        return content["value"]
    return f"{_name(content['refr'])}.{content['field'][1]}" if kind == "RefDot" else "?"


def _is_integer(node: Node) -> bool:
    kind, content = kind_of(node)
    if kind == "UnaryExpr":
        return _is_integer(content["expr"])
    return kind == "Number" and (isinstance(content["value"], int) or content["value"].is_integer())


def _has_name(node: Node, scope: Scope) -> bool:
    kind, content = kind_of(node)
    if kind == "Var":
        return content["value"] in scope.bindings or content["value"] == "_"
    return any(_has_name(child, scope) for child in children(content))
