"""Everything that a bundle must pass before it may be activated: the load, the authors' tests, the decision cases."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway.bundle.case_runs import Evaluate, run_cases
from gateway.bundle.load import CheckedBundle, load_bundle, load_files
from gateway.domain.catalogue import Bundle, PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.findings import Finding
from gateway.domain.reasons import ReasonCode
from gateway.policy.timing import time_worst_inputs

OpenEvaluator = Callable[[Bundle], AbstractAsyncContextManager[Evaluate]]
"""Starts an engine on a bundle's policies and ends it again; in between calls can be evaluated."""
RunTests = Callable[[PolicySet, Mapping[str, str]], list[Finding]]
"""Runs the authors' ``test_`` rules (`gateway.policy.rego_tests.run_tests`)."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the check of a folder came to."""

    checked: CheckedBundle | None
    """The bundle, where the load passed; it may be activated only if `is_good`."""
    findings: tuple[Finding, ...]
    """From the load: what is wrong or doubtful in the files."""
    failures: tuple[Finding, ...] = ()
    """From the tests and cases."""

    @property
    def is_valid(self) -> bool:
        """Whether the files are in order, whatever the tests say."""
        return self.checked is not None

    @property
    def is_good(self) -> bool:
        """Whether the bundle may be activated."""
        return self.is_valid and not any(finding.severity == "error" for finding in self.failures)

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Everything that was found, by place."""
        return tuple(sorted((*self.findings, *self.failures)))


async def check_folder(folder: Path, *, open_evaluator: OpenEvaluator, run_tests: RunTests) -> Report:
    """Load a folder and, where that passes, run its tests and cases."""
    return await _check(lambda: load_bundle(folder), open_evaluator, run_tests)


async def check_files(files: Mapping[str, bytes], *, open_evaluator: OpenEvaluator, run_tests: RunTests) -> Report:
    """The same checks of files that came another way than from a folder: relative path -> bytes."""
    return await _check(lambda: load_files(files), open_evaluator, run_tests)


async def _check(load: Callable[[], CheckedBundle | list[Finding]], open_evaluator: OpenEvaluator, run_tests: RunTests) -> Report:
    loaded = await asyncio.to_thread(load)
    if isinstance(loaded, list):
        return Report(checked=None, findings=tuple(loaded))
    return await check_bundle(loaded, open_evaluator=open_evaluator, run_tests=run_tests)


async def check_bundle(checked: CheckedBundle, *, open_evaluator: OpenEvaluator, run_tests: RunTests) -> Report:
    """Run the tests and cases of a loaded bundle. Raises PolicyFault where it is the host that cannot run an engine."""
    async with AsyncExitStack() as stack:
        try:
            evaluate = await stack.enter_async_context(open_evaluator(checked.bundle))
        except PolicyFault as fault:
            if fault.reason_code is ReasonCode.POLICY_ENGINE_UNAVAILABLE:
                raise
            return Report(checked=None, findings=tuple(sorted((*checked.warnings, _no_decision(fault)))))
        failures = await asyncio.to_thread(run_tests, checked.bundle.policy, checked.modules)
        failures += await run_cases(checked.bundle, checked.cases, evaluate)
        failures += await asyncio.to_thread(time_worst_inputs, checked.bundle)
    return Report(checked=checked, findings=checked.warnings, failures=tuple(sorted(failures)))


def _no_decision(fault: PolicyFault) -> Finding:
    return Finding(
        file="rego",
        line=0,
        column=0,
        code="policy-no-decision",
        message=f"The engine gives no decision on an empty call: {fault.detail}.",
        mend="Look for loops inside loops, and for rules that do not depend on the tool; a decision must take far less than its limit.",
    )
