"""Running cases: through the evaluation that is passed in, compared with what they expect."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.bundle import check_folder, run_cases
from gateway.domain.call import CallCount, Facts, Proposed
from gateway.domain.catalogue import Bundle, FieldError, PolicySet
from gateway.domain.decision import PolicyFault, Refusal
from gateway.domain.findings import Finding
from gateway.domain.reasons import Effect, ReasonCode
from tests.fakes.small_bundle import SmallBundle


def pass_tests(_policies: PolicySet, _modules: Mapping[str, str]) -> list[Finding]:
    return []


@dataclass(frozen=True)
class Answer:
    effect: Effect
    reason_code: str
    stage: str = "decide"
    refusal: Refusal | None = None


class Evaluator:
    """Answers by tool name and remembers what it was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = {"find_room": Answer(Effect.ALLOW, "POLICY_ALLOWED"), "take_room": Answer(Effect.DENY, "DEFAULT_DENY")} | answers
        self.asked: list[tuple[Proposed, Facts]] = []
        self.opened: list[Bundle] = []

    async def __call__(self, proposed: Proposed, facts: Facts) -> Answer:
        self.asked.append((proposed, facts))
        return self.answers[str(proposed.call.name)]

    @asynccontextmanager
    async def open(self, bundle: Bundle) -> AsyncGenerator["Evaluator"]:
        self.opened.append(bundle)
        yield self


async def run(small: SmallBundle, evaluator: Evaluator, **options: Any) -> list[tuple[str, str, str, int, str]]:
    checked = small.load()
    found = await run_cases(checked.bundle, checked.cases, evaluator, **options)
    return [(finding.severity, finding.code, finding.file, finding.line, finding.message) for finding in found]


async def test_cases_that_come_out_as_expected_leave_nothing(small: SmallBundle):
    assert await run(small, Evaluator()) == []


async def test_a_case_without_expectation_must_be_denied(small: SmallBundle):
    found = await run(small, Evaluator(take_room=Answer(Effect.ALLOW, "POLICY_ALLOWED")))

    sentence = "`taking one is not allowed by anything` expects deny, and it came out as allow POLICY_ALLOWED at decide"
    assert found == [("error", "case-failed", "cases/rooms.yaml", 10, sentence)]


async def test_a_case_fails_on_another_reason_code(small: SmallBundle):
    found = await run(small, Evaluator(find_room=Answer(Effect.ALLOW, "READ_ONLY_ALLOWED")))

    sentence = "`rooms may be looked at` expects allow POLICY_ALLOWED, and it came out as allow READ_ONLY_ALLOWED at decide"
    assert found == [("error", "case-failed", "cases/rooms.yaml", 9, sentence)]


MALFORMED = Answer(
    Effect.DENY,
    ReasonCode.ARGUMENTS_INVALID,
    "validate",
    Refusal(reason_code=ReasonCode.ARGUMENTS_INVALID, errors=(FieldError(path="/rom", message="unknown field; allowed: room"),)),
)


async def test_a_case_that_expects_any_denial_is_not_satisfied_by_arguments_that_no_policy_saw(small: SmallBundle):
    found = await run(small, Evaluator(take_room=MALFORMED))

    sentence = (
        "`taking one is not allowed by anything` expects deny, and it came out as deny ARGUMENTS_INVALID at validate "
        "(args/rom: unknown field; allowed: room)"
    )
    assert found == [("error", "case-failed", "cases/rooms.yaml", 10, sentence)]


async def test_a_case_about_the_form_of_arguments_expects_its_reason_code(small: SmallBundle):
    small.change(
        "cases/rooms.yaml", "expect: {effect: allow, reason_code: POLICY_ALLOWED}", "expect: {effect: deny, reason_code: ARGUMENTS_INVALID}"
    )
    assert await run(small, Evaluator(find_room=MALFORMED)) == []


async def test_a_case_that_fails_on_its_context_names_the_field(small: SmallBundle):
    refusal = Refusal(reason_code=ReasonCode.CONTEXT_INVALID, errors=(FieldError(path="/version", message="required"),))
    found = await run(small, Evaluator(find_room=Answer(Effect.DENY, ReasonCode.CONTEXT_INVALID, "validate", refusal)))

    assert [sentence.rpartition(" (")[2] for *_, sentence in found] == ["context/version: required)"]


async def test_an_exposed_tool_without_case_is_a_warning(small: SmallBundle):
    small.write("cases/rooms.yaml", "[]\n")

    assert [found[:3] for found in await run(small, Evaluator())] == [
        ("warning", "case-missing", "tools/find_room.yaml"),
        ("warning", "case-missing", "tools/take_room.yaml"),
    ]


async def test_a_case_is_slow_only_if_its_best_of_three_is(small: SmallBundle):
    ticks = iter([0, 0.08, 1, 1.07, 2, 2.06, 3, 3.08, 4, 4.01])
    found = await run(small, Evaluator(), clock=lambda: next(ticks))

    assert found == [("error", "case-slow", "cases/rooms.yaml", 1, "`rooms may be looked at` took 60 ms at best; the bound is 50 ms")]


async def test_a_case_is_proposed_as_its_agent_would_with_the_facts_that_it_states(small: SmallBundle):
    small.write(
        "cases/rooms.yaml",
        """\
- name: with facts
  agent: helper
  subject: ada
  workflow: taking
  tool: find_room
  args: {city: Rome}
  context: {version: "1"}
  now: 2026-03-01T10:00:00Z
  facts:
    run: {calls: 3, failures: 1, history: [{tool: find_room, status: ok, at: 2026-03-01T09:00:00Z}]}
    recent: {same_call: {count: 2, last_at: 2026-03-01T09:00:00Z, last_status: ok}}
  expect: {effect: allow}
""",
    )
    evaluator = Evaluator()
    await run(small, evaluator)

    ((proposed, facts),) = evaluator.asked
    assert (proposed.caller.name, proposed.on_behalf_of, proposed.workflow_name) == ("helper", "ada", "taking")
    assert (proposed.call.name, proposed.call.args, proposed.context) == ("find_room", {"city": "Rome"}, {"version": "1"})
    assert proposed.now == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert proposed.is_dry_run
    assert (facts.run_calls, facts.run_failures, len(facts.history)) == (3, 1, 1)
    assert facts.same_call == CallCount(count=2, last_at=datetime(2026, 3, 1, 9, tzinfo=UTC), last_status="ok")
    assert facts.same_tool == CallCount()


async def test_a_tool_that_wants_a_key_from_its_caller_gets_one(small: SmallBundle):
    small.change("tools/take_room.yaml", "idempotency: {key: [subject, args.room, context.version], window: 30m}", "idempotency: caller")
    evaluator = Evaluator()
    await run(small, evaluator)

    keys = {proposed.call.name: proposed.call.idempotency_key for proposed, _ in evaluator.asked}
    assert keys["find_room"] is None
    assert len(keys["take_room"] or "") >= 16


async def test_a_folder_that_does_not_load_runs_no_engine(small: SmallBundle):
    small.change("workflows.yaml", "max_risk: write", "max_risk: read")
    evaluator = Evaluator()
    report = await check_folder(small.folder, open_evaluator=evaluator.open, run_tests=pass_tests)

    assert (report.is_valid, report.is_good) == (False, False)
    assert [finding.code for finding in report.all_findings] == ["risk-above-workflow"]
    assert evaluator.opened == []


async def test_a_folder_is_good_when_its_tests_and_cases_pass(small: SmallBundle):
    evaluator = Evaluator()
    report = await check_folder(small.folder, open_evaluator=evaluator.open, run_tests=pass_tests)

    assert (report.is_valid, report.is_good, report.all_findings) == (True, True, ())
    assert report.checked is not None
    assert evaluator.opened == [report.checked.bundle]


async def test_a_failing_case_leaves_the_folder_valid_and_not_good(small: SmallBundle):
    evaluator = Evaluator(find_room=Answer(Effect.DENY, "DEFAULT_DENY"))
    report = await check_folder(small.folder, open_evaluator=evaluator.open, run_tests=pass_tests)

    assert (report.is_valid, report.is_good) == (True, False)


async def test_policies_that_give_no_decision_in_time_make_the_folder_invalid(small: SmallBundle):
    @asynccontextmanager
    async def never(_bundle: Bundle) -> AsyncGenerator[Evaluator]:
        raise PolicyFault(ReasonCode.POLICY_TIMEOUT, "the evaluation exceeded its limit of 250 ms")
        yield Evaluator()

    report = await check_folder(small.folder, open_evaluator=never, run_tests=pass_tests)

    assert (report.is_valid, report.is_good) == (False, False)
    assert [(finding.code, finding.place, finding.message) for finding in report.all_findings] == [
        ("policy-no-decision", "rego", "The engine gives no decision on an empty call: the evaluation exceeded its limit of 250 ms.")
    ]


async def test_a_host_that_cannot_run_an_engine_is_not_the_bundles_fault(small: SmallBundle):
    @asynccontextmanager
    async def never(_bundle: Bundle) -> AsyncGenerator[Evaluator]:
        raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "no worker could be started: Cannot allocate memory")
        yield Evaluator()

    with pytest.raises(PolicyFault):
        await check_folder(small.folder, open_evaluator=never, run_tests=pass_tests)
