"""Negation and unbound names: where the engines disagree most, and where a typing error makes a rule vanish."""

from collections.abc import Iterator

from gateway.domain.findings import Finding
from gateway.policy.checks.syntax import COMPREHENSIONS, Module, Node, children, kind_of, modifiers, offset_of

_NOT_IMPORT = ("future", "keywords", "not")


def check_variables(module: Module) -> Iterator[Finding]:
    """Findings on ``not`` and on names that nothing binds."""
    known = {"input", "data", "_", *module.aliases, *(rule.name[0] for rule in module.rules if rule.name)}
    imported = {path for path, _, _ in module.imports}
    walker = _Walker(module, has_not=_NOT_IMPORT in imported)
    for rule in module.rules:
        outer = known | {name for argument in rule.arguments for name, _ in _names(argument)}
        for body in rule.bodies or [{"query": {"stmts": []}}]:
            bound = walker.bound(body["query"], outer)
            yield from walker.query(body["query"], outer)
            for node in [*rule.values, *([body["assign"]["value"]] if body.get("assign") else [])]:
                yield from walker.expression(node, bound)


class _Walker:
    def __init__(self, module: Module, *, has_not: bool) -> None:
        self._module = module
        self._has_not = has_not

    def query(self, query: Node, outer: set[str]) -> Iterator[Finding]:
        bound = self.bound(query, outer)
        for statement in query["stmts"]:
            kind, content = kind_of(statement["literal"])
            if kind == "NotExpr":
                yield from self._negation(content, bound)
            elif kind == "Every":
                yield from self.expression(content["domain"], bound)
                own = {self._module.text(span) for span in (content["key"], content["value"]) if span}
                yield from self.query(content["query"], bound | own)
            else:
                for child in children(content):
                    yield from self.expression(child, bound)
            for modifier in modifiers(statement):
                yield from self.expression(modifier["as"], bound | set(_builtin_head(modifier["as"])))

    def bound(self, query: Node, outer: set[str]) -> set[str]:
        """The names that have a value in a query: all around it, and what its positive statements bind."""
        found = set(outer)
        for statement in query["stmts"]:
            kind, content = kind_of(statement["literal"])
            if kind == "SomeIn":
                for pattern in (content["key"], content["value"]):
                    found |= {name for name, _ in _names(pattern)} if pattern else set()
                found |= set(_indexes(content["collection"]))
            elif kind == "Expr":
                found |= set(_indexes(content["expr"])) | set(_walked(content["expr"]))
                if "AssignExpr" in content["expr"]:
                    assign = content["expr"]["AssignExpr"]
                    sides = ("lhs",) if assign["op"] == "ColEq" else ("lhs", "rhs")
                    found |= {name for side in sides for name in _pattern_names(assign[side])}
        return found

    def expression(self, node: Node, bound: set[str], *, is_negated: bool = False) -> Iterator[Finding]:
        kind, content = kind_of(node)
        if kind == "Var":
            if content["value"] not in bound:
                yield self._unbound(node, content["value"], is_negated=is_negated)
            elif is_negated and content["value"] == "_":
                yield self._unbound(node, "_", is_negated=True)
        elif kind == "Call":
            for parameter in content["params"]:
                yield from self.expression(parameter, bound, is_negated=is_negated)
        elif kind in COMPREHENSIONS:
            inner = self.bound(content["query"], bound)
            for part in ("term", "key", "value"):
                if part in content:
                    yield from self.expression(content[part], inner)
            yield from self.query(content["query"], bound)
        else:
            yield from _arithmetic(self._module, node)
            for child in children(content):
                yield from self.expression(child, bound, is_negated=is_negated)

    def _negation(self, content: Node, bound: set[str]) -> Iterator[Finding]:
        if not self._has_not:
            yield self._module.finding(
                content["span"]["start"],
                "rego-not-import",
                "Without its import, `not` fails for facts that are missing: in OPA the whole rule disappears.",
                "Add the line: import future.keywords.not",
            )
        yield from self.expression(content["expr"], bound, is_negated=True)

    def _unbound(self, node: Node, name: str, *, is_negated: bool) -> Finding:
        if is_negated:
            return self._module.finding(
                offset_of(node),
                "rego-unsafe-negation",
                f"{name} has no value where `not` is evaluated; the engines disagree about it.",
                "Bind the name before the `not`, or move the search into a rule of its own and negate that.",
            )
        return self._module.finding(
            offset_of(node), "rego-name-unknown", f"Nothing gives {name} a value.", "Correct the name, or bind it in this rule."
        )


def _names(node: Node) -> Iterator[tuple[str, int]]:
    kind, content = kind_of(node)
    if kind == "Var":
        yield content["value"], content["span"]["start"]
    for child in children(content):
        yield from _names(child)


def _pattern_names(node: Node) -> Iterator[str]:
    """The names that a side of an assignment can bind: a name, or names in arrays and values of objects."""
    kind, content = kind_of(node)
    if kind == "Var":
        yield content["value"]
    elif kind in ("Array", "Object"):
        for child in children(content):
            yield from _pattern_names(child)


def _indexes(node: Node) -> Iterator[str]:
    """The names that iterate: an index in brackets, outside nested queries."""
    kind, content = kind_of(node)
    if kind in COMPREHENSIONS:
        return
    if kind == "RefBrack" and "Var" in content["index"]:
        yield content["index"]["Var"]["value"]
    for child in children(content):
        yield from _indexes(child)


def _walked(node: Node) -> Iterator[str]:
    """The names that ``walk(x, [path, value])`` binds."""
    kind, content = kind_of(node)
    if kind == "Call" and len(content["params"]) == 2 and content["fcn"].get("Var", {}).get("value") == "walk":
        yield from _pattern_names(content["params"][1])


def _builtin_head(node: Node) -> Iterator[str]:
    """The first word of what a ``with`` puts in place: a builtin's name is no variable."""
    kind, content = kind_of(node)
    if kind in ("RefDot", "RefBrack"):
        yield from _builtin_head(content["refr"])
    elif kind == "Var":
        yield content["value"]


def _arithmetic(module: Module, node: Node) -> Iterator[Finding]:
    kind, content = kind_of(node)
    if kind == "Number" and isinstance(content["value"], float) and not content["value"].is_integer():
        yield module.finding(
            content["span"]["start"],
            "rego-fraction",
            "Fractions are inexact in one of the engines.",
            "Use integers in a smaller unit, such as micro-units.",
        )
    elif kind == "ArithExpr" and content["op"] == "Div":
        yield module.finding(
            offset_of(content["lhs"]),
            "rego-fraction",
            "A division can leave a fraction, which is inexact in one of the engines.",
            "Multiply the other side instead.",
        )
    elif kind == "UnaryExpr" and "Number" not in content["expr"]:
        yield module.finding(content["span"]["start"], "rego-minus", "The engines read a leading minus differently.", "Write it as 0 - x.")
