"""Walks the rules of a module and tells every reference, call and replacement with what it resolves to."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.policy.checks.syntax import COMPREHENSIONS, Module, Node, Path, Rule, children, kind_of, literal_string, modifiers, offset_of

Names = dict[str, Path | None]
"""What a name stands for inside a query; None where that is known only at evaluation."""

_PASSES = 3
"""Rego is unordered: a name may stand for another one that is bound further below."""


@dataclass(frozen=True)
class Use:
    """One use of something by a rule."""

    module: Module
    rule: Rule | None
    """None for an import."""
    kind: str
    """``read``, ``call``, ``compared`` (of the input with `parameters`), ``replaced`` (target of a ``with``), ``replacement`` or ``import``."""
    path: Path
    offset: int
    parameters: list[Node] = field(default_factory=list[Node])
    parameter_paths: list[Path | None] = field(default_factory=list[Path | None])


def uses_of(module: Module) -> Iterator[Use]:
    """All uses in a module; a use may be told more than once."""
    for path, _, offset in module.imports:
        if path[0] in ("input", "data"):
            yield Use(module, None, "import", path, offset)
    rule_names: Names = {rule.name[0]: ("data", *module.package, rule.name[0]) for rule in module.rules if rule.name}
    for rule in module.rules:
        names = rule_names | module.aliases
        for argument in rule.arguments:
            names |= dict.fromkeys(variables(argument))
        walker = _Walker(module, rule)
        for body in rule.bodies or [{"query": {"stmts": []}}]:
            inner = _bind(names, body["query"], walker)
            for node in [*rule.values, *([body["assign"]["value"]] if body.get("assign") else [])]:
                yield from walker.expression(node, inner)
            yield from walker.query(body["query"], inner)


def variables(node: Node) -> Iterator[str]:
    """The variables of a pattern or expression, those of nested queries included."""
    kind, content = kind_of(node)
    if kind == "Var":
        yield content["value"]
    for child in children(content):
        yield from variables(child)


class _Walker:
    def __init__(self, module: Module, rule: Rule) -> None:
        self._module = module
        self._rule = rule

    def resolve(self, node: Node, names: Names) -> Path | None:
        """What a reference stands for; None for other expressions and for names known only at evaluation."""
        kind, content = kind_of(node)
        if kind == "Var":
            name = content["value"]
            return names.get(name, (name,))
        if kind not in ("RefDot", "RefBrack"):
            return None
        head = self.resolve(content["refr"], names)
        if head is None:
            return None
        return (*head, content["field"][1] if kind == "RefDot" else literal_string(content["index"]))

    def query(self, query: Node, names: Names) -> Iterator[Use]:
        """The uses in a query whose names are bound already."""
        for statement in query["stmts"]:
            kind, content = kind_of(statement["literal"])
            if kind == "Every":
                yield from self.expression(content["domain"], names)
                inner = names | dict.fromkeys(self.texts(content["key"]))
                domain = self.resolve(content["domain"], names)
                inner |= dict.fromkeys(self.texts(content["value"]), domain and (*domain, None))
                yield from self.query(content["query"], _bind(inner, content["query"], self))
            else:
                for child in children(content):
                    yield from self.expression(child, names)
            for modifier in modifiers(statement):
                target, value = self.resolve(modifier["refr"], names), modifier["as"]
                if target is not None:
                    yield Use(self._module, self._rule, "replaced", target, offset_of(modifier["refr"]))
                if (replacement := self.resolve(value, names)) is not None:
                    yield Use(self._module, self._rule, "replacement", replacement, offset_of(value))
                else:
                    yield from self.expression(value, names)

    def expression(self, node: Node, names: Names) -> Iterator[Use]:
        """The uses in an expression, the outermost reference of a chain only."""
        kind, content = kind_of(node)
        if kind in ("RefDot", "RefBrack", "Var"):
            path = self.resolve(node, names)
            if path is not None:
                yield Use(self._module, self._rule, "read", path, offset_of(node))
            yield from self._steps(node, names)
        elif kind == "Call":
            path = self.resolve(content["fcn"], names)
            parameters = content["params"]
            if path is not None:
                paths = [self.resolve(parameter, names) for parameter in parameters]
                yield Use(self._module, self._rule, "call", path, offset_of(content["fcn"]), parameters, paths)
            for parameter in parameters:
                yield from self.expression(parameter, names)
        elif kind in COMPREHENSIONS:
            inner = _bind(names, content["query"], self)
            for part in ("term", "key", "value"):
                if part in content:
                    yield from self.expression(content[part], inner)
            yield from self.query(content["query"], inner)
        else:
            yield from self._comparisons(kind, content, names)
            for child in children(content):
                yield from self.expression(child, names)

    def _comparisons(self, kind: str, content: Node, names: Names) -> Iterator[Use]:
        """What is compared with a part of the input: the other side of ``==``, ``!=`` or ``=``, or the items behind ``in``."""
        pairs: list[tuple[Node, list[Node]]] = []
        if kind == "Membership":
            of, others = kind_of(content["collection"])
            pairs = [(content["value"], others["items"] if of in ("Set", "Array") else [])]
        elif kind in ("BoolExpr", "AssignExpr"):
            pairs = [(content["lhs"], [content["rhs"]]), (content["rhs"], [content["lhs"]])]
        for side, others in pairs:
            path = self.resolve(side, names)
            if path is not None and path[0] == "input":
                yield Use(self._module, self._rule, "compared", path, offset_of(side), others)

    def _steps(self, node: Node, names: Names) -> Iterator[Use]:
        kind, content = kind_of(node)
        if kind not in ("RefDot", "RefBrack"):
            if kind != "Var":
                yield from self.expression(node, names)
            return
        if kind == "RefBrack":
            yield from self.expression(content["index"], names)
        yield from self._steps(content["refr"], names)

    def texts(self, span: Node | None) -> list[str]:
        """The name in a span, as ``every`` writes its variables."""
        return [self._module.text(span)] if span else []


def _bind(names: Names, query: Node, walker: _Walker) -> Names:
    """The names inside a query: those around it and those that its own statements bind."""
    inner = dict(names)
    for _ in range(_PASSES):
        for statement in query["stmts"]:
            kind, content = kind_of(statement["literal"])
            if kind == "SomeIn":
                collection = walker.resolve(content["collection"], inner)
                _assign(inner, content["value"], collection and (*collection, None))
                if content["key"]:
                    _assign(inner, content["key"], None)
            elif kind == "SomeVars":
                for span in content["vars"]:
                    for name in walker.texts(span):
                        if inner.get(name) == names.get(name):
                            inner[name] = None
            elif kind == "Expr" and "AssignExpr" in content["expr"]:
                assign = content["expr"]["AssignExpr"]
                _assign(inner, assign["lhs"], walker.resolve(assign["rhs"], inner), is_declaration=assign["op"] == "ColEq")
    return inner


def _assign(names: Names, pattern: Node, path: Path | None, *, is_declaration: bool = True) -> None:
    kind, content = kind_of(pattern)
    if kind == "Var":
        # `=` compares where the name is known already, and binds where it is not.
        if is_declaration or content["value"] not in names:
            names[content["value"]] = path
    elif kind in ("Array", "Object"):
        for name in variables(pattern):
            if is_declaration or name not in names:
                names[name] = None
