"""Running decision cases: each one through the gateway's own stages, against the decision that it expects."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import NAMESPACE_OID, uuid5

from gateway.bundle.cases import Case
from gateway.bundle.catalogue_files import Placed
from gateway.domain.call import Facts, Proposed, ProposedCall
from gateway.domain.catalogue import Bundle
from gateway.domain.decision import Refusal
from gateway.domain.findings import Finding
from gateway.domain.principal import Caller, Role
from gateway.domain.reasons import Effect, ReasonCode

MAX_MILLISECONDS = 50.0
"""Slower than this, best of three, a case stops activation."""
_ATTEMPTS = 3
_NAMED_ERRORS = 3
_MALFORMED: Mapping[str, str] = {ReasonCode.ARGUMENTS_INVALID: "args", ReasonCode.CONTEXT_INVALID: "context"}
"""Codes of calls whose form no policy ever saw, with the part that does not fit."""


class Evaluation(Protocol):
    """The decision on a call that was not made."""

    @property
    def effect(self) -> Effect:
        """What would happen."""
        ...

    @property
    def reason_code(self) -> str:
        """Why."""
        ...

    @property
    def stage(self) -> str:
        """Where on its path the call was decided."""
        ...

    @property
    def refusal(self) -> Refusal | None:
        """What stopped the call, if anything did."""
        ...


Evaluate = Callable[[Proposed, Facts], Awaitable[Evaluation]]
"""Decide on a proposed call with stated facts instead of the ledger's; execute and record nothing."""


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """One case that was run."""

    name: str
    file: str
    line: int
    milliseconds: float
    failure: Finding | None


async def run_case(bundle: Bundle, case: Placed[Case], evaluate: Evaluate, *, clock: Callable[[], float] = time.perf_counter) -> CaseRun:
    """Run one case."""
    started = clock()
    found = await _run_case(bundle, case, evaluate, clock)
    took = (clock() - started) * 1000
    place = case.source.finding("/name", "case-failed", "", "")
    return CaseRun(name=case.value.name, file=place.file, line=place.line, milliseconds=took, failure=next(iter(found), None))


async def run_cases(
    bundle: Bundle, cases: Sequence[Placed[Case]], evaluate: Evaluate, *, clock: Callable[[], float] = time.perf_counter
) -> list[Finding]:
    """A finding for each case that comes out otherwise or is too slow, and a warning for each exposed tool without a case."""
    findings: list[Finding] = []
    for case in cases:
        findings += await _run_case(bundle, case, evaluate, clock)
    tried = {case.value.tool for case in cases}
    for name, tool in bundle.tools.items():
        if tool.declaration.exposed and name not in tried:
            message, mend = f"no case calls `{name}`", "Add one to a file under cases/: an allowed call, and one that must be refused."
            findings.append(
                Finding(file=f"tools/{name}.yaml", line=0, column=0, code="case-missing", message=message, mend=mend, severity="warning")
            )
    return findings


async def _run_case(bundle: Bundle, case: Placed[Case], evaluate: Evaluate, clock: Callable[[], float]) -> list[Finding]:
    proposed, facts = propose(bundle, case.value, case.source.file), case.value.facts.as_facts()
    answer, fastest = await _time(evaluate(proposed, facts), clock)
    for _ in range(_ATTEMPTS - 1):
        if fastest > MAX_MILLISECONDS:
            answer, took = await _time(evaluate(proposed, facts), clock)
            fastest = min(fastest, took)
    expected, source = case.value.expect, case.source
    is_malformed = answer.reason_code in _MALFORMED
    # A call that no policy ever saw proves nothing about a denial, unless the case says that it is about the form.
    is_as_expected = expected.reason_code == answer.reason_code or (expected.reason_code is None and not is_malformed)
    if answer.effect is not expected.effect or not is_as_expected:
        wanted = f"{expected.effect} {expected.reason_code or ''}".strip()
        message = f"`{case.value.name}` expects {wanted}, and it came out as {answer.effect} {answer.reason_code} at {answer.stage}"
        mend = "Mend the policy, or the case if it expects the wrong thing."
        if is_malformed:
            message += f" ({_name_errors(answer)})"
            mend = f"Correct the call of the case; a case about the form itself expects the reason code {answer.reason_code}."
        return [source.finding("/expect", "case-failed", message, mend)]
    if fastest > MAX_MILLISECONDS:
        message = f"`{case.value.name}` took {fastest:.0f} ms at best; the bound is {MAX_MILLISECONDS:.0f} ms"
        return [source.finding("", "case-slow", message, "Look for loops inside loops in the Rego that this call reaches.")]
    return []


def _name_errors(answer: Evaluation) -> str:
    part = _MALFORMED[answer.reason_code]
    errors = answer.refusal.errors if answer.refusal else ()
    return "; ".join(f"{part}{error.path}: {error.message}" for error in errors[:_NAMED_ERRORS])


async def _time(evaluation: Awaitable[Evaluation], clock: Callable[[], float]) -> tuple[Evaluation, float]:
    started = clock()
    answer = await evaluation
    return answer, (clock() - started) * 1000


def propose(bundle: Bundle, case: Case, file: str) -> Proposed:
    """The call of a case, as if its agent had just proposed it."""
    decision_id = uuid5(NAMESPACE_OID, f"{file}#{case.name}")
    tool = bundle.tools.get(case.tool)
    needs_key = tool is not None and tool.declaration.idempotency == "caller"
    return Proposed(
        caller=Caller(tenant="default", name=case.agent, roles=frozenset({Role.AGENT})),
        bundle=bundle,
        decision_id=decision_id,
        now=case.now,
        workflow_name=case.workflow,
        run_id="case",
        on_behalf_of=case.subject,
        context=case.context,
        call=ProposedCall(name=case.tool, args=case.args, idempotency_key=f"case-{decision_id}" if needs_key else None),
        is_dry_run=True,
    )
