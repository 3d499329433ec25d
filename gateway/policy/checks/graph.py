"""How rules refer to each other and to data: references that lead nowhere, that cannot be seen, or that run in a circle."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.domain.findings import Finding
from gateway.policy.checks.syntax import Module, Path
from gateway.policy.checks.walk import Use
from gateway.policy.modules import AUTHORS_ROOT

RulePath = tuple[str, ...]


class RuleGraph:
    """All rules of a bundle by their full path below ``data``, and what each refers to."""

    def __init__(self, modules: list[Module], data: Mapping[str, Any]) -> None:
        self._data = data
        self._rules: dict[RulePath, bool] = {}
        """Whether a rule belongs to tests only."""
        self._places: dict[RulePath, tuple[Module, int]] = {}
        self._edges: dict[RulePath, set[RulePath]] = {}
        self.functions: dict[RulePath, set[int]] = {}
        """Numbers of parameters of each function."""
        for module in modules:
            for rule in module.rules:
                path = (*module.package, *rule.name)
                self._rules[path] = module.is_test and self._rules.get(path, True)
                self._places.setdefault(path, (module, rule.offset))
                if rule.form == "function":
                    self.functions.setdefault(path, set()).add(len(rule.arguments))

    def check_use(self, use: Use) -> Iterator[Finding]:
        """Note what a rule refers to; findings where that cannot be followed or does not exist."""
        if use.path[0] != "data" or use.kind == "replacement":
            return
        target = use.path[1:]
        rule = self._rule_of(target)
        if rule is not None:
            if use.rule is not None and use.kind != "replaced":
                self._edges.setdefault((*use.module.package, *use.rule.name), set()).add(rule)
            if self._rules[rule] and not use.module.is_test:
                yield _find(use, "rego-data-unknown", f"{_dotted(use.path)} exists in tests only.", "Move it out of the tests.")
        elif use.kind == "read" or (use.kind == "import" and not self._is_package(target)):
            yield from self._check_data(use, target)

    def _is_package(self, target: Path) -> bool:
        return any(rule[: len(target)] == target for rule in self._rules)

    def _check_data(self, use: Use, target: Path) -> Iterator[Finding]:
        if not target or target[0] is None:
            yield _find(use, "rego-data-dynamic", "The whole of data is read.", "Name the rule or document that is needed.")
        elif target[0] == "gateway":
            yield _find(use, "rego-reserved", "data.gateway belongs to the gateway.", "Test the decision in cases/*.yaml.")
        elif target[0] == AUTHORS_ROOT:
            if any(_may_lead_to(target, rule) for rule in self._rules):
                yield _find(use, "rego-data-dynamic", f"{_dotted(use.path)} names no single rule.", "Name the rule by its full path.")
            else:
                yield _find(use, "rego-data-unknown", f"There is no rule {_dotted(use.path)}.", "Define it, or correct its name.")
        else:
            node: Any = self._data
            for step in target:
                if step is None or not isinstance(node, Mapping):
                    return
                if step not in node:
                    yield _find(
                        use, "rego-data-unknown", f"No data document has {_dotted(use.path)}.", "Add it below data/, or correct its name."
                    )
                    return
                node = node[step]  # pyright: ignore[reportUnknownVariableType]

    def check_cycles(self) -> Iterator[Finding]:
        """One finding for each rule that depends on itself."""
        done: set[RulePath] = set()
        for start in sorted(self._edges):
            if start in done or not self._reaches(start, start):
                continue
            module, offset = self._places[start]
            done |= {rule for rule in self._edges if self._reaches(start, rule) and self._reaches(rule, start)}
            yield module.finding(
                offset,
                "rego-recursion",
                f"{'.'.join(start)} depends on itself.",
                "Break the circle: OPA refuses it, and the embedded engine could crash.",
            )

    def _reaches(self, start: RulePath, goal: RulePath) -> bool:
        seen: set[RulePath] = set()
        ahead = list(self._edges.get(start, ()))
        while ahead:
            rule = ahead.pop()
            if rule == goal:
                return True
            if rule not in seen:
                seen.add(rule)
                ahead += self._edges.get(rule, ())
        return False

    def _rule_of(self, target: Path) -> RulePath | None:
        for length in range(len(target), 0, -1):
            path = target[:length]
            if path in self._rules:
                return path  # pyright: ignore[reportReturnType] -- a rule's path has no dynamic step
        return None


def check_data(data: Mapping[str, Any], file: str = "data") -> Iterator[Finding]:
    """Findings on data documents: a document at a rule's path would silently replace the rule, and fractions are inexact."""
    for root in (AUTHORS_ROOT, "gateway"):
        if root in data:
            yield Finding(
                file=file,
                line=0,
                column=0,
                code="rego-data-overlap",
                message=f"The data document {root} lies where rules live; the embedded engine would let it replace them.",
                mend="Move it to a root of its own, such as the bundle's name.",
            )
    yield from _check_numbers(data, (), file)


def _check_numbers(value: Any, path: tuple[str, ...], file: str) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _check_numbers(item, (*path, str(key)), file)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from _check_numbers(item, (*path, str(index)), file)
    elif isinstance(value, float) or (isinstance(value, int) and abs(value) > 2**53 - 1):
        yield Finding(
            file=file,
            line=0,
            column=0,
            code="rego-data-number",
            message=f"{'.'.join(path)} is no integer within 2^53-1; the engines would calculate differently with it.",
            mend="Use an integer in a smaller unit, such as micro-units, or a string.",
        )


def _find(use: Use, code: str, message: str, mend: str) -> Finding:
    return use.module.finding(use.offset, code, message, mend)


def _dotted(path: Path) -> str:
    return ".".join(step or "[_]" for step in path)


def _may_lead_to(target: Path, rule: RulePath) -> bool:
    steps = zip(target, rule, strict=False)
    return all(step is None or step == known for step, known in steps)
