"""What an expression may be, as far as schemas, declared values and the rules themselves tell: numbers, texts, collections.

Where the engines part depends on that more often than on the construct: they count the characters of a text differently, not
the items of a list. What nothing tells may be anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gateway.domain.json_values import is_array, is_object
from gateway.domain.policy_input import PolicyInput
from gateway.policy.checks.syntax import COMPREHENSIONS, Module, Node, Rule, children, kind_of, literal_string, modifiers
from gateway.policy.modules import AUTHORS_ROOT

INTEGER, FRACTION, TEXT, LIST, OBJECT, SET, BOOLEAN, NULL = "integer", "fraction", "text", "list", "object", "set", "boolean", "null"
COLLECTIONS = frozenset({LIST, OBJECT, SET})
ALL = frozenset({INTEGER, FRACTION, TEXT, LIST, OBJECT, SET, BOOLEAN, NULL})
_MAX_DEPTH = 40

_OF_TYPE = {
    "integer": {INTEGER},
    "number": {INTEGER, FRACTION},
    "string": {TEXT},
    "array": {LIST},
    "object": {OBJECT},
    "boolean": {BOOLEAN},
    "null": {NULL},
}
_BUILTINS: dict[str, tuple[str, str]] = {
    # name: (what it gives, what that holds)
    **dict.fromkeys(("count", "ceil", "floor", "round", "semver.compare"), (INTEGER, "")),
    **dict.fromkeys(("time.add_date", "time.parse_duration_ns", "time.parse_rfc3339_ns"), (INTEGER, "")),
    **dict.fromkeys(("time.clock", "time.date", "time.diff"), (LIST, INTEGER)),
    **dict.fromkeys(("concat", "format_int", "replace", "sprintf", "strings.replace_n", "strings.reverse"), (TEXT, "")),
    **dict.fromkeys(("trim", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix"), (TEXT, "")),
    **dict.fromkeys(("base64.encode", "hex.encode", "time.weekday", "type_name"), (TEXT, "")),
    "split": (LIST, TEXT),
    "object.keys": (SET, ""),
    **dict.fromkeys(("object.filter", "object.remove", "object.union", "object.union_n"), (OBJECT, "")),
    **dict.fromkeys(("array.concat", "array.reverse", "sort"), (LIST, "")),
    **dict.fromkeys(("union", "intersection", "graph.reachable"), (SET, "")),
}
_LITERALS = {"String": TEXT, "RawString": TEXT, "Bool": BOOLEAN, "BoolExpr": BOOLEAN, "Membership": BOOLEAN, "Null": NULL}
_OF_ITEMS = frozenset({"array.reverse", "sort", "sum", "product", "min", "max", "abs"})
"""Give what their argument, or its items, are."""


@dataclass(frozen=True)
class Shape:
    """What a value may be, and what it holds: by key, or by any key (None)."""

    kinds: frozenset[str]
    step: Callable[[str | None], "Shape"] = field(repr=False)

    @property
    def items(self) -> "Shape":
        """Whatever it holds."""
        return self.step(None)


def of_kinds(*kinds: str, items: Shape | None = None) -> Shape:
    """A shape of some kinds that holds `items`."""
    return Shape(frozenset(kinds), lambda _: items or ANYTHING)


ANYTHING = Shape(ALL, lambda _: ANYTHING)
NOTHING = Shape(frozenset(), lambda _: NOTHING)


def union(shapes: Iterable[Shape]) -> Shape:
    """One of them."""
    found = list(shapes)
    if len(found) == 1:
        return found[0]
    return Shape(frozenset[str]().union(*(shape.kinds for shape in found)), lambda step: union(shape.step(step) for shape in found))


def of_value(value: Any) -> Shape:
    """The shape of a JSON value that is known."""
    if is_object(value):
        return Shape(
            frozenset({OBJECT}),
            lambda step: union(map(of_value, value.values())) if step is None else of_value(value[step]) if step in value else NOTHING,
        )
    if is_array(value):
        return Shape(frozenset({LIST}), lambda _: union(map(of_value, value)))
    kinds: dict[type, str] = {bool: BOOLEAN, int: INTEGER, float: FRACTION, str: TEXT, type(None): NULL}
    return of_kinds(kinds[type(value)], items=NOTHING)


def of_schema(schema: Any, root: Any, depth: int = 0) -> Shape:
    """The shape of what a JSON Schema accepts; keywords that only narrow further are left out."""
    if not is_object(schema) or depth > _MAX_DEPTH:
        return ANYTHING
    if (reference := schema.get("$ref")) is not None:
        return of_schema(_follow(str(reference), root), root, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if is_array(choices := schema.get(keyword)):
            return union(of_schema(choice, root, depth + 1) for choice in choices)
    if is_array(values := schema.get("enum", [schema["const"]] if "const" in schema else None)):
        return union(map(of_value, values))
    names = schema.get("type")
    listed = [names] if isinstance(names, str) else names if is_array(names) else list(_OF_TYPE)
    return Shape(
        frozenset[str]().union(*(_OF_TYPE.get(str(name), ALL) for name in listed)), lambda step: _inside(schema, root, step, depth + 1)
    )


def _inside(schema: Mapping[str, Any], root: Any, step: str | None, depth: int) -> Shape:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if step is not None and step in properties:
        return of_schema(properties[step], root, depth)
    parts: list[Any] = [schema[name] for name in ("items", "additionalProperties", "contains") if is_object(schema.get(name))]
    parts += schema.get("prefixItems", []) + list(schema.get("patternProperties", {}).values())
    parts += list(properties.values()) if step is None else []
    is_open = not properties and not parts
    return ANYTHING if is_open else union(of_schema(part, root, depth) for part in parts)


def _follow(reference: str, root: Any) -> Any:
    node = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if is_object(node) else None
    return node


@dataclass(frozen=True, kw_only=True)
class InputShapes:
    """What a bundle declares about its calls: schemas of all tools' arguments and all workflows' contexts, and all subjects' attributes."""

    arguments: Sequence[Mapping[str, Any]] = ()
    contexts: Sequence[Mapping[str, Any]] = ()
    attributes: Sequence[Mapping[str, Any]] = ()

    def shape(self) -> Shape:
        """The shape of ``input``."""
        schema = PolicyInput.model_json_schema()
        declared: dict[tuple[str, ...], Shape] = {
            ("args",): union(of_schema(each, each) for each in self.arguments),
            ("context",): union(of_schema(each, each) for each in self.contexts),
            ("subject", "attributes"): union(map(of_value, self.attributes)),
        }

        def at(path: tuple[str, ...], known: Shape) -> Shape:
            if path in declared:
                return declared[path]
            return Shape(known.kinds, lambda step: known.step(None) if step is None else at((*path, step), known.step(step)))

        return at((), of_schema(schema, schema))


class Shapes:
    """Works out shapes of expressions over all modules of a bundle."""

    def __init__(self, modules: Sequence[Module], data: Mapping[str, Any], declared: InputShapes) -> None:
        self._input = declared.shape()
        self._data = of_value(data)
        self._rules: dict[tuple[str, ...], list[Rule]] = {}
        self._calls: dict[tuple[str, ...], list[tuple[Scope, list[Node]]]] = {}
        self._busy: set[int] = set()
        self._known: dict[int, Shape] = {}
        self._by_kind: dict[str, Callable[[Node, Scope], Shape]] = {
            "Number": self._of_number,
            "Array": partial(self._of_listed, LIST),
            "Set": partial(self._of_listed, SET),
            "Object": self._of_object,
            "ArrayCompr": partial(self._of_comprehension, LIST),
            "SetCompr": partial(self._of_comprehension, SET),
            "ObjectCompr": partial(self._of_comprehension, OBJECT),
            "BinExpr": self._of_set_operation,
            "ArithExpr": self._of_parts,
            "UnaryExpr": self._of_parts,
            "Call": self._of_call,
            "Var": self._of_variable,
            "RefDot": self._of_reference,
            "RefBrack": self._of_reference,
        }
        self.scopes: list[Scope] = []
        for module in modules:
            for rule in module.rules:
                self._rules.setdefault((*module.package, *rule.name), []).append(rule)
                self.scopes.append(Scope(module, rule))
        self._scope_of = {id(scope.rule): scope for scope in self.scopes}
        for scope in self.scopes:
            for node in scope.nodes:
                kind, content = kind_of(node)
                if kind == "Call" and (path := self._path(content["fcn"], scope)) in self._rules:
                    self._calls.setdefault(path, []).append((scope, content["params"]))

    def of(self, node: Node, scope: "Scope") -> Shape:
        """What an expression of a rule may be."""
        place = id(node)
        if place in self._known:
            return self._known[place]
        if place in self._busy or len(self._busy) > 500:  # a circle, which is refused elsewhere
            return NOTHING
        self._busy.add(place)
        try:
            shape = self._work_out(node, scope)
        finally:
            self._busy.discard(place)
        self._known[place] = shape
        return shape

    def _work_out(self, node: Node, scope: "Scope") -> Shape:
        kind, content = kind_of(node)
        if kind in _LITERALS:
            return of_kinds(_LITERALS[kind])
        work_out = self._by_kind.get(kind)
        return work_out(content, scope) if work_out else ANYTHING

    def _of_number(self, content: Node, _: "Scope") -> Shape:
        value = content["value"]
        return of_kinds(FRACTION if isinstance(value, float) and not value.is_integer() else INTEGER)

    def _of_parts(self, content: Node, scope: "Scope") -> Shape:
        return union(self.of(child, scope) for child in children(content))

    def _of_listed(self, kind: str, content: Node, scope: "Scope") -> Shape:
        return of_kinds(kind, items=union(self.of(item, scope) for item in content["items"]))

    def _of_comprehension(self, kind: str, content: Node, scope: "Scope") -> Shape:
        return of_kinds(kind, items=self.of(content["value" if kind == OBJECT else "term"], scope))

    def _of_set_operation(self, content: Node, scope: "Scope") -> Shape:
        return of_kinds(SET, items=union((self.of(content["lhs"], scope).items, self.of(content["rhs"], scope).items)))

    def _of_reference(self, content: Node, scope: "Scope") -> Shape:
        step = content["field"][1] if "field" in content else literal_string(content["index"])
        return self.of(content["refr"], scope).step(step)

    def _of_variable(self, content: Node, scope: "Scope") -> Shape:
        return self._of_name(content["value"], scope)

    def _of_object(self, content: Node, scope: "Scope") -> Shape:
        fields = {literal_string(key): value for _, key, value in content["fields"]}

        def step(name: str | None) -> Shape:
            if name is not None and name in fields and None not in fields:
                return self.of(fields[name], scope)
            return union(self.of(value, scope) for value in fields.values())

        return Shape(frozenset({OBJECT}), step)

    def _of_call(self, content: Node, scope: "Scope") -> Shape:
        path = self._path(content["fcn"], scope)
        if path in self._rules:
            return union(self._of_rule(rule) for rule in self._rules[path])
        name = ".".join(path)
        parameters = [self.of(parameter, scope) for parameter in content["params"]]
        if name == "object.get" and len(parameters) == 3:
            key = content["params"][1]
            kind, inner = kind_of(key)
            found = parameters[0]
            for step in inner["items"] if kind == "Array" else [key]:
                found = found.step(literal_string(step))
            return union((found, parameters[2]))
        if name in _OF_ITEMS and parameters:
            inside = parameters[0].items
            return of_kinds(LIST, items=inside) if name in ("array.reverse", "sort") else parameters[0] if name == "abs" else inside
        if name in _BUILTINS:
            gives, holds = _BUILTINS[name]
            return of_kinds(gives, items=of_kinds(holds) if holds else None)
        return of_kinds(BOOLEAN) if name.startswith("is_") else ANYTHING

    def _of_name(self, name: str, scope: "Scope") -> Shape:
        if name in scope.bindings:
            return union(self._of_binding(how, node, scope) for how, node in scope.bindings[name])
        path = self._absolute(name, scope)
        if path[0] == "input":
            found = self._input
            for step in path[1:]:
                found = found.step(step)
            return found
        return self._of_data(path[1:]) if path[0] == "data" else ANYTHING

    def _of_binding(self, how: str, node: Node, scope: "Scope") -> Shape:
        if how == "parameter":
            position: int = node["position"]
            calls = self._calls.get((*scope.module.package, *scope.rule.name), [])
            return union(self.of(given[position], caller) for caller, given in calls if position < len(given))
        shape = self.of(node, scope)
        if how == "item":
            return shape.items
        if how == "key":
            return of_kinds(INTEGER) if shape.kinds <= {LIST} else of_kinds(TEXT) if shape.kinds <= {OBJECT} else ANYTHING
        return shape

    def _of_data(self, path: tuple[str, ...]) -> Shape:
        if found := self._rules.get(path):
            return union(map(self._of_rule, found))
        if path and path[0] != AUTHORS_ROOT:
            shape = self._data
            for step in path:
                shape = shape.step(step)
            return shape
        return Shape(frozenset({OBJECT}), lambda step: ANYTHING if step is None else self._of_data((*path, step)))

    def _of_rule(self, rule: Rule) -> Shape:
        scope = self._scope_of[id(rule)]
        if rule.form == "set":
            return of_kinds(SET, items=self.of(rule.head["key"], scope))
        if rule.form == "default":
            return self.of(rule.head["value"], scope)
        assigned = [rule.head.get("assign"), *(body.get("assign") for body in rule.bodies if body.get("is_else"))]
        shapes = [self.of(each["value"], scope) if each else of_kinds(BOOLEAN) for each in assigned]
        has_key = kind_of(rule.head["refr"])[0] == "RefBrack" and rule.form != "function"
        return of_kinds(OBJECT, items=union(shapes)) if has_key else union(shapes)

    def _path(self, node: Node, scope: "Scope") -> tuple[str, ...]:
        kind, content = kind_of(node)
        if kind == "Var":
            return self._absolute(content["value"], scope, is_call=True)
        if kind == "RefDot":
            return (*self._path(content["refr"], scope), content["field"][1])
        return ("?",)

    def _absolute(self, name: str, scope: "Scope", *, is_call: bool = False) -> tuple[str, ...]:
        if name in scope.module.aliases:
            path = tuple(step or "?" for step in scope.module.aliases[name])
            return path[1:] if is_call and path[0] == "data" else path
        own = (*scope.module.package, name)
        if any(rule[: len(own)] == own for rule in self._rules):
            return own if is_call else ("data", *own)
        return () if is_call and name == "data" else (name,)


class Scope:
    """One rule: every expression in it, and what may give its names their values. Names in nested queries count as the rule's own."""

    def __init__(self, module: Module, rule: Rule) -> None:
        self.module = module
        self.rule = rule
        self.bindings: dict[str, list[tuple[str, Node]]] = {}
        self.nodes: list[Node] = []
        self.iterated: list[Node] = []
        """The collections of ``some … in``."""
        for position, argument in enumerate(rule.arguments):
            kind, content = kind_of(argument)
            if kind == "Var":
                self._bind(content["value"], "parameter", {"position": position})
            else:
                self._bind_pattern(argument, {"Null": {}})
        values = [rule.head["value"]] if rule.form == "default" else rule.values
        for node in values:
            self._expression(node)
        for body in rule.bodies:
            if body.get("assign"):
                self._expression(body["assign"]["value"])
            self._query(body["query"])

    def _query(self, query: Node) -> None:
        for statement in query["stmts"]:
            kind, content = kind_of(statement["literal"])
            if kind == "Every":
                self._bind_texts(content)
                self._expression(content["domain"])
                self._query(content["query"])
            elif kind == "SomeIn":
                self.iterated.append(content["collection"])
                self._bind_pattern(content["value"], content["collection"], how="item")
                if content["key"]:
                    self._bind_pattern(content["key"], content["collection"], how="key")
                self._expression(content["collection"])
            else:
                for child in children(content):
                    self._expression(child)
            for modifier in modifiers(statement):
                self._expression(modifier["as"])

    def _expression(self, node: Node) -> None:
        kind, content = kind_of(node)
        self.nodes.append(node)
        if kind == "AssignExpr":
            for side, other in (("lhs", "rhs"), ("rhs", "lhs")):
                if side == "lhs" or content["op"] != "ColEq":
                    self._bind_pattern(content[side], content[other], how="value")
        if kind == "RefBrack" and "Var" in content["index"]:
            self._bind(content["index"]["Var"]["value"], "key", content["refr"])
        if kind == "Call" and content["fcn"].get("Var", {}).get("value") == "walk" and len(content["params"]) == 2:
            self._bind_walk(content["params"][1])
        if kind in COMPREHENSIONS:
            self._query(content["query"])
            for part in ("term", "key", "value"):
                if part in content:
                    self._expression(content[part])
            return
        for child in children(content):
            self._expression(child)

    def _bind_walk(self, pattern: Node) -> None:
        """``walk(x, [path, value])``: a path is a list."""
        for place, item in enumerate(pattern["Array"]["items"] if "Array" in pattern else ()):
            self._bind_pattern(item, {"Array": {"items": []}} if place == 0 else {"Unknown": {}})

    def _bind_texts(self, every: Node) -> None:
        for part, how in (("key", "key"), ("value", "item")):
            if every[part]:
                self._bind(self.module.text(every[part]), how, every["domain"])

    def _bind_pattern(self, pattern: Node, source: Node, *, how: str = "value") -> None:
        kind, content = kind_of(pattern)
        if kind == "Var":
            self._bind(content["value"], how, source)
        elif kind == "Array" and how == "value":
            for item in content["items"]:
                self._bind_pattern(item, source, how="item")
        elif kind in ("Array", "Object"):
            for name in _names(pattern):
                self._bind(name, "value", {"Unknown": {}})

    def _bind(self, name: str, how: str, node: Node) -> None:
        # A name that means something outside (a rule, an import) is compared by `=`, not bound.
        if name not in ("_", "input", "data") and name not in self.module.aliases:
            self.bindings.setdefault(name, []).append((how, node))


def _names(node: Node) -> Iterator[str]:
    kind, content = kind_of(node)
    if kind == "Var":
        yield content["value"]
    for child in children(content):
        yield from _names(child)
