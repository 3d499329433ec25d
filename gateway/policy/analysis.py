"""Checks authors' Rego and data before they may decide: what compiles nowhere, means something else in the other engine, or never fires."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.domain.findings import Finding
from gateway.domain.policy_input import CANARY
from gateway.domain.reasons import Effect
from gateway.policy import worker
from gateway.policy.checks.agreement import check_agreement
from gateway.policy.checks.calls import check_call, regex_patterns
from gateway.policy.checks.graph import RuleGraph, check_data
from gateway.policy.checks.inputs import InputPaths, check_inputs
from gateway.policy.checks.names import DeclaredNames, check_names
from gateway.policy.checks.nesting import check_nesting
from gateway.policy.checks.rules import check_imports, check_package, check_rules
from gateway.policy.checks.shapes import InputShapes, Shapes
from gateway.policy.checks.syntax import Module, syntax_error
from gateway.policy.checks.variables import check_variables
from gateway.policy.checks.walk import Use, uses_of
from gateway.policy.errors import explain_error
from gateway.policy.modules import assemble
from gateway.policy.sandbox import Sandbox, SandboxError


def analyse(
    modules: Mapping[str, str],
    data: Mapping[str, Any],
    *,
    argument_names: frozenset[str],
    own_codes: Mapping[str, Effect],
    declared: DeclaredNames,
    shapes: InputShapes | None = None,
) -> list[Finding]:
    """All findings on a bundle's Rego modules (file name -> source, tests included) and its merged data document, sorted.

    `argument_names`: the first-level argument names of all tools. `own_codes`: the bundle's reason codes with their effects.
    `declared`: the names that rules may compare with. `shapes`: what arguments, contexts and attributes may be.
    Sources are untrusted: they are parsed in a worker process. Blocks for some 50 ms; inside an event loop use a thread.
    """
    findings = set(check_data(data))
    if too_deep := {finding for file, source in modules.items() if (finding := check_nesting(file, source))}:
        return sorted(findings | too_deep)  # No parser may see these.
    try:
        with Sandbox() as sandbox:
            findings |= set(_check(sandbox, modules, data, _Bundle(argument_names, own_codes, declared, shapes or InputShapes())))
    except (SandboxError, RecursionError) as fault:
        findings.add(
            _whole(
                "rego-not-checkable",
                f"The check was stopped: {str(fault)[:200]}.",
                "Simplify the policies; something in them is too large.",
            )
        )
    return sorted(findings)


@dataclass(frozen=True)
class _Bundle:
    """What the files beside the Rego declare."""

    argument_names: frozenset[str]
    own_codes: Mapping[str, Effect]
    declared: DeclaredNames
    shapes: InputShapes


def _check(sandbox: Sandbox, sources: Mapping[str, str], data: Mapping[str, Any], bundle: _Bundle) -> Iterator[Finding]:
    modules: list[Module] = []
    broken: list[Finding] = []
    for parsed in sandbox.parse(sources):
        file = parsed["file"]
        if "error" in parsed:
            broken.append(syntax_error(file, sources[file], parsed["error"]))
        else:
            modules.append(Module(file, sources[file], parsed["module"]))
    if broken:  # Names of the missing modules would all look unknown.
        yield from broken
        return
    found = list(_check_modules(modules, sources, data, bundle))
    uses = [use for module in modules for use in uses_of(module)]
    found += _try_patterns(sandbox, uses)
    yield from found
    if not any(finding.severity == "error" for finding in found):
        yield from _try_decision(sandbox, sources, data)


def _check_modules(modules: list[Module], sources: Mapping[str, str], data: Mapping[str, Any], bundle: _Bundle) -> Iterator[Finding]:
    paths = InputPaths(bundle.argument_names)
    graph = RuleGraph(modules, data)
    for module in modules:
        yield from check_package(module, sources[module.file])
        yield from check_imports(module)
        yield from check_rules(module, bundle.own_codes)
        yield from check_variables(module)
        for use in uses_of(module):
            yield from check_inputs(use, paths)
            yield from check_names(use, bundle.declared)
            yield from check_call(use, graph.functions)
            yield from graph.check_use(use)
    yield from graph.check_cycles()
    shapes = Shapes(modules, data, bundle.shapes)
    for scope in shapes.scopes:
        yield from check_agreement(scope, shapes)


def _try_patterns(sandbox: Sandbox, uses: list[Use]) -> Iterator[Finding]:
    for use in uses:
        for pattern, offset in regex_patterns(use):
            mark, _ = sandbox.query(f'regex.match({orjson.dumps(pattern).decode()}, "")')
            if mark != worker.RESULT:
                yield use.module.finding(
                    offset, "rego-regex", "The pattern is not a regular expression.", "Correct the pattern (RE2 syntax)."
                )


def _try_decision(sandbox: Sandbox, sources: Mapping[str, str], data: Mapping[str, Any]) -> Iterator[Finding]:
    policies = assemble(sources, data, "sha256:check")
    try:
        error = sandbox.load(policies.modules, policies.data)
        if error is None:
            mark, error = sandbox.decide(CANARY)
            if mark == worker.RESULT:
                return
    except SandboxError as fault:
        yield _whole(
            "policy-no-decision",
            f"The engine gives no decision on an empty call: {fault}.",
            "Look for loops inside loops, and for rules that do not depend on the tool; a decision must take far less than its limit.",
        )
        return
    yield _whole(
        "rego-no-decision", f"The policies have no decision on an empty call: {explain_error(error)}.", "Correct the rule that is named."
    )


def _whole(code: str, message: str, mend: str) -> Finding:
    return Finding(file="rego", line=0, column=0, code=code, message=message, mend=mend)
