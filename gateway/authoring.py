"""What authors of policies run on their own machine: the tests and cases of a folder, one by one, with what they reach."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.bundle import CheckedBundle, load_bundle
from gateway.bundle.case_runs import run_case
from gateway.domain.findings import Finding
from gateway.domain.ports import PolicyEngine
from gateway.policy.coverage import Coverage, Failing, explain_tests, measure
from gateway.policy.listening import ListeningEngine
from gateway.policy.rego_tests import run_each
from gateway.policy.sandbox import SandboxError
from gateway.rehearsal import rehearse


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """One ``test_`` rule or one case."""

    __test__ = False  # for pytest

    kind: str
    """``rego`` or ``case``."""
    name: str
    file: str
    line: int
    failure: str | None
    """Why it failed, one sentence; None where it passed."""
    failing: Failing | None = None


@dataclass(frozen=True, kw_only=True)
class TestReport:
    """What testing a folder came to."""

    __test__ = False  # for pytest

    findings: tuple[Finding, ...]
    """Errors in the files: no test ran. Or errors that concern all tests."""
    results: tuple[TestResult, ...] = ()
    coverage: Coverage | None = None
    is_valid: bool = True

    @property
    def failed(self) -> tuple[TestResult, ...]:
        """Those that did not pass."""
        return tuple(result for result in self.results if result.failure is not None)

    @property
    def is_good(self) -> bool:
        """Whether something ran and all of it passed."""
        return self.is_valid and bool(self.results) and not self.failed and not self.findings


async def test_folder(
    folder: Path, *, engine: PolicyEngine, report: Callable[[Exception], None], only: re.Pattern[str], with_coverage: bool
) -> TestReport:
    """Run the tests and cases of a folder whose name `only` finds. `engine` is closed at the end. Raises PolicyFault."""
    loaded = await asyncio.to_thread(load_bundle, folder)
    if isinstance(loaded, list):
        await engine.close()
        return TestReport(findings=tuple(loaded), is_valid=False)
    bundle, modules = loaded.bundle, loaded.modules
    runs, findings = await asyncio.to_thread(run_each, bundle.policy, modules, only)
    failed = [run.path for run in runs if run.failure is not None]
    why = await asyncio.to_thread(explain_tests, bundle.policy, modules, failed)
    results = [
        TestResult(
            kind="rego",
            name=run.name,
            file=run.file,
            line=run.line,
            failure=run.failure.message if run.failure else None,
            failing=why.get(run.path),
        )
        for run in runs
    ]
    listening = ListeningEngine(engine)
    results += await _run_cases(loaded, listening, report, only)
    coverage = None
    if with_coverage:
        try:
            coverage = await asyncio.to_thread(
                measure, bundle.policy, modules, tests=[run.path for run in runs], documents=listening.heard, own_codes=bundle.own_reasons
            )
        except SandboxError as error:
            findings.append(
                Finding(
                    file="rego", line=0, column=0, code="rego-not-checkable",
                    message=f"Coverage cannot be measured: {error}.", mend="Simplify the policies or their tests.",
                )
            )  # fmt: skip
    return TestReport(findings=tuple(findings), results=tuple(results), coverage=coverage)


async def _run_cases(
    loaded: CheckedBundle, engine: PolicyEngine, report: Callable[[Exception], None], only: re.Pattern[str]
) -> Sequence[TestResult]:
    results: list[TestResult] = []
    async with rehearse(loaded.bundle, engine=engine, report=report) as evaluate:
        for case in loaded.cases:
            if only.search(case.value.name):
                run = await run_case(loaded.bundle, case, evaluate)
                results.append(
                    TestResult(
                        kind="case", name=run.name, file=run.file, line=run.line, failure=run.failure.message if run.failure else None
                    )
                )
    return results


def as_document(report: TestReport) -> Mapping[str, object]:
    """The report as JSON values."""
    document: dict[str, object] = {
        "valid": report.is_valid,
        "good": report.is_good,
        "findings": [vars(finding) for finding in report.findings],
        "results": [_result(result) for result in report.results],
    }
    if (found := report.coverage) is not None:
        shares = {"rules": found.rules, "lines": found.lines, "reason_codes": found.reason_codes}
        document["coverage"] = {"percent": round(found.percent, 1)} | {
            name: {
                "percent": round(share.percent, 1),
                "reached": share.reached,
                "total": share.total,
                "missing": [vars(place) for place in share.missing],
            }
            for name, share in shares.items()
        }
    return document


def _result(result: TestResult) -> dict[str, object]:
    failing = result.failing
    told = failing and {"line": failing.line, "statement": failing.statement, "values": [vars(value) for value in failing.values]}
    return {**vars(result), "failing": told}
