"""What tests and cases reach of a bundle's Rego: rules, lines and reason codes; and why a test is not true."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from gateway.domain.catalogue import PolicySet
from gateway.domain.reasons import Effect
from gateway.policy import worker
from gateway.policy.checks.syntax import COMPREHENSIONS, Node, children, kind_of, modifiers
from gateway.policy.errors import explain_error
from gateway.policy.modules import TEST_SUFFIX
from gateway.policy.sandbox import Sandbox, SandboxError
from gateway.policy.tracing import Body, Traced, bodies_of, cut, trace_all

_LONGEST_VALUE = 300
_MOST_VALUES = 6
_LITERALS = frozenset({"String", "RawString", "Number", "Bool", "Null"})


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line, and what stands there."""

    file: str
    line: int
    what: str


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of something were reached, and which were not."""

    reached: int
    total: int
    missing: tuple[Place, ...]

    @property
    def percent(self) -> float:
        """0 to 100; nothing at all counts as reached."""
        return 100.0 if self.total == 0 else 100.0 * self.reached / self.total


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """A rule counts as reached once all statements of one of its bodies held; each body counts for itself."""

    rules: Share
    lines: Share
    """Lines that begin a statement of a rule; reached once they were evaluated."""
    reason_codes: Share

    @property
    def percent(self) -> float:
        """The lowest of the three."""
        return min(self.rules.percent, self.lines.percent, self.reason_codes.percent)


@dataclass(frozen=True, kw_only=True)
class Value:
    """What an expression came to: JSON, ``undefined``, or the sentence of an error."""

    expression: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Failing:
    """The first statement of a body that did not hold, and the values in it."""

    line: int
    statement: str
    values: tuple[Value, ...]


def measure(
    policies: PolicySet, modules: Mapping[str, str], *, tests: Sequence[str], documents: Iterable[bytes], own_codes: Iterable[str]
) -> Coverage:
    """Run tests (by path) and inputs (of cases) once more, on Rego that is traced. Blocks; raises SandboxError."""
    traced, reached = _trace(policies, modules, tests, documents)
    bodies = [body for body in bodies_of(traced) if not body.module.is_test]
    fired = {id(body) for body in bodies if body.has_fired(reached.get(body.module.file, frozenset()))}
    codes: dict[str, list[Body]] = {code: [] for code in own_codes}
    for body in bodies:
        if body.effect_code is not None and body.rule in set(Effect):
            codes.setdefault(body.effect_code, []).append(body)
    unreached = [code for code, giving in sorted(codes.items()) if not any(id(body) in fired for body in giving)]
    return Coverage(
        rules=_share(bodies, [body for body in bodies if id(body) not in fired]),
        lines=_lines(bodies, reached),
        reason_codes=Share(
            reached=len(codes) - len(unreached), total=len(codes), missing=tuple(_place_of_code(code, codes[code]) for code in unreached)
        ),
    )


def explain_tests(policies: PolicySet, modules: Mapping[str, str], tests: Sequence[str]) -> dict[str, Failing]:
    """Path of each failed test -> its failing statement with values, where the engine can tell. Blocks."""
    found: dict[str, Failing] = {}
    for test in tests:
        try:
            with Sandbox() as sandbox:
                traced = _load(sandbox, policies, modules)
                sandbox.evaluate(test)
                reached = sandbox.reached()
                for body in bodies_of(traced):
                    path = ".".join(("data", *body.module.package, body.rule))
                    if path == test and not body.has_fired(reached.get(body.module.file, frozenset())):
                        failing = failing_statement(sandbox, policies, modules, body, reached.get(body.module.file, frozenset()), None)
                        if failing is not None:
                            found[test] = failing
        except SandboxError:
            continue  # It killed its worker once more; that is what its failure says already.
    return found


def failing_statement(
    sandbox: Sandbox, policies: PolicySet, modules: Mapping[str, str], body: Body, lines: frozenset[int], document: bytes | None
) -> Failing | None:
    """Where a body stopped; None where it was never tried or has fired. The sandbox is loaded anew."""
    held = body.held(lines)
    if held is None or held >= len(body.statements):
        return None
    statement = body.statements[held]
    source = modules[body.module.file]
    values: list[Value] = []
    if not body.is_function:
        for number, expression in enumerate(_expressions(source, statement.node)):
            values.append(_value(sandbox, policies, modules, body, held, number, expression, document))
    return Failing(line=statement.line, statement=statement.text, values=tuple(values))


def _trace(
    policies: PolicySet, modules: Mapping[str, str], tests: Sequence[str], documents: Iterable[bytes]
) -> tuple[list[Traced], dict[str, frozenset[int]]]:
    reached: dict[str, frozenset[int]] = {}
    traced: list[Traced] = []
    work = [(False, test.encode()) for test in tests] + [(True, document) for document in documents]
    while True:  # What ends its worker reached nothing; the rest goes on in a new one.
        with Sandbox() as sandbox:
            traced = _load(sandbox, policies, modules)
            try:
                while work:
                    is_document, what = work.pop(0)
                    _ = sandbox.decide(what) if is_document else sandbox.evaluate(what.decode())
                    for file, lines in sandbox.reached().items():
                        reached[file] = reached.get(file, frozenset()) | lines
            except SandboxError:
                continue
        return traced, reached


def _load(sandbox: Sandbox, policies: PolicySet, modules: Mapping[str, str]) -> list[Traced]:
    traced = trace_all(sandbox, modules)
    error = sandbox.load({**policies.modules, **{each.file: each.source for each in traced}}, policies.data, coverage=True)
    if error is not None:
        raise SandboxError(explain_error(error))
    return traced


def _share(bodies: Sequence[Body], missing: Sequence[Body]) -> Share:
    places = sorted((body.module.file, body.line, body.rule) for body in missing)
    return Share(
        reached=len(bodies) - len(missing),
        total=len(bodies),
        missing=tuple(Place(file=file, line=line, what=f"{rule} never fired") for file, line, rule in places),
    )


def _lines(bodies: Sequence[Body], reached: Mapping[str, frozenset[int]]) -> Share:
    lines: dict[tuple[str, int], tuple[bool, str]] = {}
    for body in bodies:
        held = body.held(reached.get(body.module.file, frozenset()))
        for number, statement in enumerate(body.statements):
            place = (body.module.file, statement.line)
            was, text = lines.get(place, (False, statement.text.split("\n", 1)[0]))
            lines[place] = (was or (held is not None and number <= held), text)
    missing = [Place(file=file, line=line, what=text) for (file, line), (is_reached, text) in sorted(lines.items()) if not is_reached]
    return Share(reached=len(lines) - len(missing), total=len(lines), missing=tuple(missing))


def _place_of_code(code: str, giving: Sequence[Body]) -> Place:
    if not giving:
        return Place(file="bundle.yaml", line=0, what=f"no rule gives {code}")
    return Place(file=giving[0].module.file, line=giving[0].line, what=f"no test or case reaches {code}")


def _expressions(source: str, statement: Node) -> list[str]:
    kind, literal = kind_of(statement["literal"])
    if kind not in ("Expr", "NotExpr"):
        return []
    node: Node = literal["expr"]
    of, content = kind_of(node)
    sides = {"BoolExpr": ("lhs", "rhs"), "AssignExpr": ("rhs",), "Membership": ("value", "collection")}.get(of)
    nodes = [content[side] for side in sides] if sides else [node]
    if of == "Call":
        nodes = content["params"]
    withs = "".join(f" with {cut(source, each['refr'])} as {cut(source, each['as'])}" for each in modifiers(statement))
    return [cut(source, each) + withs for each in nodes if not _is_literal(each)][:_MOST_VALUES]


def _is_literal(node: Node) -> bool:
    kind, content = kind_of(node)
    if kind in _LITERALS:
        return True
    return kind in ("Array", "Set", "Object") and kind not in COMPREHENSIONS and all(_is_literal(child) for child in children(content))


def _value(
    sandbox: Sandbox,
    policies: PolicySet,
    modules: Mapping[str, str],
    body: Body,
    held: int,
    number: int,
    expression: str,
    document: bytes | None,
) -> Value:
    imports = "\n".join(line for line in modules[body.module.file].splitlines() if line.startswith("import "))
    before = "\n".join(statement.text for statement in body.statements[:held])
    name = f"probe_of_the_workbench_{number}"
    probe = f"package {'.'.join(body.module.package)}\n\n{imports}\n\n{name} contains value if {{\n{before}\nvalue := {expression}\n}}\n"
    shown = expression.split(" with ", 1)[0]
    sources = {**policies.modules, **{file: text for file, text in modules.items() if file.endswith(TEST_SUFFIX)}, "probe.rego": probe}
    error = sandbox.load(sources, policies.data)
    if error is not None:
        return Value(expression=shown, value="not known")
    rule = ".".join(("data", *body.module.package, name))
    mark, text = sandbox.evaluate(rule) if document is None else sandbox.evaluate_with(rule, document)
    if mark == worker.ERROR:
        return Value(expression=shown, value=explain_error(text))
    found: list[object] = orjson.loads(text) if mark == worker.RESULT else []
    shown_value = ", ".join(orjson.dumps(each).decode() for each in found)
    return Value(expression=shown, value=shown_value[:_LONGEST_VALUE] or "undefined")
