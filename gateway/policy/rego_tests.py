"""Runs the authors' ``test_`` rules in a worker process."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.domain.catalogue import PolicySet
from gateway.domain.findings import Finding
from gateway.policy import worker
from gateway.policy.checks.syntax import Module, syntax_error
from gateway.policy.errors import explain_error
from gateway.policy.modules import TEST_SUFFIX
from gateway.policy.sandbox import Sandbox, SandboxError

_MEND = "Correct the policy, or the test."


@dataclass(frozen=True)
class _Test:
    module: Module
    name: str
    offset: int

    @property
    def path(self) -> str:
        return ".".join(("data", *self.module.package, self.name))

    def failure(self, why: str) -> Finding:
        return self.module.finding(self.offset, "rego-test-failed", f"{self.name} {why}.", _MEND)


@dataclass(frozen=True)
class RegoTestRun:
    """One ``test_`` rule that was run."""

    path: str
    """Such as ``data.policies.travel.search_test.test_searching_is_allowed``."""
    file: str
    line: int
    failure: Finding | None

    @property
    def name(self) -> str:
        """Package and rule, below ``policies``."""
        return self.path.removeprefix("data.policies.")


def run_each(policies: PolicySet, modules: Mapping[str, str], only: re.Pattern[str]) -> tuple[list[RegoTestRun], list[Finding]]:
    """All tests whose name `only` finds, and what is wrong with the tests as a whole. Blocks."""
    sources = {file: source for file, source in modules.items() if file.endswith(TEST_SUFFIX)}
    try:
        tests, findings = _find_tests(sources)
    except SandboxError as error:
        return [], [_whole("rego-test-failed", f"The tests cannot be read: {error}.", "Simplify them.")]
    if findings:
        return [], sorted(findings)
    chosen = [test for test in tests if only.search(test.path.removeprefix("data.policies."))]
    failed = {(found.file, found.line, found.column): found for found in _run(policies, sources, chosen)} if chosen else {}
    runs: list[RegoTestRun] = []
    for test in chosen:
        line, column = test.module.place(test.offset)
        runs.append(RegoTestRun(test.path, test.module.file, line, failed.pop((test.module.file, line, column), None)))
    return sorted(runs, key=lambda run: (run.file, run.line)), sorted(failed.values())


def run_tests(policies: PolicySet, modules: Mapping[str, str]) -> list[Finding]:
    """One finding for each ``test_`` rule in the ``*_test.rego`` files of `modules` that is not true; a warning if there is none.

    The tests see the policies and data of the set. Each gets a second. Blocks; inside an event loop use a thread.
    """
    sources = {file: source for file, source in modules.items() if file.endswith(TEST_SUFFIX)}
    try:
        tests, findings = _find_tests(sources)
    except SandboxError as error:
        return [_whole("rego-test-failed", f"The tests cannot be read: {error}.", "Simplify them.")]
    if findings:
        return sorted(findings)
    if not tests:
        warning = "No rule of the bundle is tested: there is no test_ rule in any *_test.rego file."
        return [
            Finding(
                file="rego",
                line=0,
                column=0,
                code="rego-no-tests",
                message=warning,
                mend="Write one beside each policy.",
                severity="warning",
            )
        ]
    return sorted(_run(policies, sources, tests))


def _find_tests(sources: Mapping[str, str]) -> tuple[list[_Test], list[Finding]]:
    tests: dict[str, _Test] = {}
    findings: list[Finding] = []
    with Sandbox() as sandbox:
        for parsed in sandbox.parse(sources):
            file = parsed["file"]
            if "error" in parsed:
                findings.append(syntax_error(file, sources[file], parsed["error"]))
                continue
            module = Module(file, sources[file], parsed["module"])
            for rule in module.rules:
                if rule.name and rule.name[0].startswith("test_"):
                    test = _Test(module, ".".join(rule.name), rule.offset)
                    tests.setdefault(test.path, test)
    return list(tests.values()), findings


def _run(policies: PolicySet, sources: Mapping[str, str], tests: list[_Test]) -> Iterator[Finding]:
    ahead = list(tests)
    while ahead:  # A test that ends its worker fails alone; the others go on in a new one.
        with Sandbox() as sandbox:
            try:
                error = sandbox.load({**policies.modules, **sources}, policies.data)
            except SandboxError as fault:
                error = str(fault)
            if error is not None:
                yield _whole("rego-test-failed", f"The tests cannot be loaded: {explain_error(error)}.", _MEND)
                return
            while ahead:
                test = ahead.pop(0)
                try:
                    why = _why_not_true(*sandbox.evaluate(test.path))
                except SandboxError as fault:
                    yield test.failure(f"did not end: {fault}")
                    break
                if why is not None:
                    yield test.failure(why)


def _why_not_true(mark: bytes, text: str) -> str | None:
    if mark == worker.UNDEFINED:
        return "is not true: one of its statements fails"
    if mark == worker.ERROR:
        return f"ends in an error: {explain_error(text)}"
    if text.strip() != "true":
        return f"is {text.strip()[:50]}, not true"
    return None


def _whole(code: str, message: str, mend: str) -> Finding:
    return Finding(file="rego", line=0, column=0, code=code, message=message, mend=mend)
