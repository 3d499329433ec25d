"""Only exactly the agreed answer is a decision."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.domain.catalogue import Bundle, OwnReason, PolicySet
from gateway.domain.decision import Decision, FiredRule, RecordLevel, RedactResult, Refusal
from gateway.domain.policy_answer import RULE_LIMIT, read_answer
from gateway.domain.reasons import Effect, ReasonCode

BUNDLE = Bundle(
    name="travel",
    revision="sha256:1",
    tools={},
    workflows={},
    agents={},
    subjects={},
    persons={},
    budgets=(),
    own_reasons={"X_LIMIT": OwnReason(code="X_LIMIT", effect=Effect.DENY, message="Too much.")},
    policy=PolicySet(revision="sha256:1", modules={}, data={}),
)
GOOD: dict[str, Any] = {
    "effect": "allow",
    "reason_code": "POLICY_ALLOWED",
    "policy": "travel.search",
    "obligations": [],
    "rules": [],
    "revision": "sha256:1",
}
RULE = {"effect": "allow", "policy": "travel.search", "reason_code": "POLICY_ALLOWED"}


def refusal(raw: Any) -> str:
    answer = read_answer(raw, BUNDLE)
    assert isinstance(answer, Refusal)
    assert answer.effect is Effect.DENY
    assert answer.detail
    assert len(answer.detail) <= 500
    return answer.reason_code


def decision(**changed: Any) -> Decision:
    answer = read_answer(GOOD | changed, BUNDLE)
    assert isinstance(answer, Decision)
    return answer


def test_reads_a_whole_answer() -> None:
    obligations = [{"type": "redact_result", "paths": ["/a"]}, {"type": "record_level", "level": "full"}]
    assert decision(rules=[RULE], obligations=obligations) == Decision(
        effect=Effect.ALLOW,
        reason_code="POLICY_ALLOWED",
        policy="travel.search",
        rules=(FiredRule(effect="allow", policy="travel.search", reason_code="POLICY_ALLOWED"),),
        obligations=(RedactResult(type="redact_result", paths=["/a"]), RecordLevel(type="record_level", level="full")),
    )


def test_reads_until_in_utc() -> None:
    suppressed = decision(effect="suppress", reason_code="SUPPRESSED_QUIET_HOURS", until="2026-03-02T07:00:00.123456789+01:00")
    assert suppressed.until == datetime(2026, 3, 2, 6, 0, 0, 123_456, tzinfo=UTC)


@pytest.mark.parametrize(
    "raw",
    [None, True, False, 1, "false", "true", "allow", [], [GOOD], {}, {"allow": True}, {"result": True}, {"effect": "allow"}],
    ids=str,
)
def test_anything_but_an_object_of_that_shape_is_invalid(raw: Any) -> None:
    assert refusal(raw) == ReasonCode.POLICY_OUTPUT_INVALID


@pytest.mark.parametrize("field", sorted(GOOD))
def test_every_field_is_needed(field: str) -> None:
    assert refusal({name: value for name, value in GOOD.items() if name != field}) == ReasonCode.POLICY_OUTPUT_INVALID


STRANGE: list[dict[str, Any]] = [
    {"extra": 1},
    {"effect": "perhaps"},
    {"effect": "invalid", "reason_code": "POLICY_OUTPUT_INVALID"},
    {"effect": "ALLOW"},
    {"effect": True},
    {"reason_code": "POLICY_DENIED"},
    {"reason_code": "X_LIMIT"},
    {"reason_code": "X_NOBODY"},
    {"reason_code": "EXECUTION_SUCCEEDED"},
    {"reason_code": None},
    {"policy": None},
    {"policy": ""},
    {"policy": "x" * 201},
    {"until": "tomorrow"},
    {"until": "2026-03-02"},
    {"until": "2026-03-02T07:00:00"},
    {"until": "2026-02-30T07:00:00Z"},
    {"until": 3},
    {"obligations": None},
    {"obligations": ["redact"]},
    {"obligations": [{"type": "redact_result"}]},
    {"obligations": [{"type": "redact_result", "paths": []}]},
    {"obligations": [{"type": "record_level", "level": "all"}]},
    {"obligations": [{"type": "record_level", "level": "full", "extra": 1}]},
    {"obligations": [{"type": "record_level", "level": "full"}] * 33},
    {"rules": [{"effect": "allow"}]},
    {"rules": ["travel.search"]},
    {"rules": [RULE | {"policy": "x" * 201}]},
]


@pytest.mark.parametrize("changed", STRANGE, ids=str)
def test_every_field_is_read_strictly(changed: dict[str, Any]) -> None:
    assert refusal(GOOD | changed) == ReasonCode.POLICY_OUTPUT_INVALID


@pytest.mark.parametrize("obligation", [{"type": "encrypt"}, {"type": None}, {"type": []}, {}, {"level": "full"}], ids=str)
def test_an_unknown_obligation_is_unsupported(obligation: dict[str, Any]) -> None:
    assert refusal(GOOD | {"obligations": [obligation]}) == ReasonCode.OBLIGATION_UNSUPPORTED


def test_another_revision_is_stale() -> None:
    assert refusal(GOOD | {"revision": "sha256:2"}) == ReasonCode.POLICY_STALE


def test_own_codes_count_for_their_effect() -> None:
    assert decision(effect="deny", reason_code="X_LIMIT").reason_code == "X_LIMIT"


def test_keeps_the_first_rules() -> None:
    assert len(decision(rules=[RULE] * 100).rules) == RULE_LIMIT


def test_never_repeats_values_of_the_answer_beyond_codes() -> None:
    answer = read_answer(GOOD | {"policy": {"secret": "hunter2"}}, BUNDLE)
    assert isinstance(answer, Refusal)
    assert "hunter2" not in (answer.detail or "")
