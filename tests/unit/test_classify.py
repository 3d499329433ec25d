from typing import Any

import pytest

from gateway.domain.catalogue import FieldError
from gateway.domain.classify import classify
from gateway.domain.outcome import CallState, Delivery, Outcome, Phase
from gateway.domain.reasons import ReasonCode
from tests.fakes.invocations import declare_http_tool

RULES: dict[str, Any] = {
    "no_match": {"status": [404], "empty": "/matches"},
    "failed": {"status": [409, 422, 507]},
    "no_effect": {"status": [429, 503]},
}


class Refusing:
    """A schema that nothing fits."""

    def errors(self, value: object) -> tuple[FieldError, ...]:  # noqa: ARG002
        return (FieldError(path="", message="does not fit"),)


class Accepting:
    """A schema that everything fits."""

    def errors(self, value: object) -> tuple[FieldError, ...]:  # noqa: ARG002
        return ()


def booked(delivery: Delivery, *, risk: str, rules: dict[str, Any] | None = None, output: Any = None) -> tuple[str, str]:
    outcome = classify(declare_http_tool(risk=risk, result=rules or {}), output, delivery)
    assert outcome.delivery is delivery
    return outcome.state, outcome.reason_code


def answered(status: int | None, value: Any = None, **more: Any) -> Delivery:
    return Delivery(phase=Phase.ANSWERED, status=status, value=value, **more)


def expected_by_default(status: int, risk: str) -> tuple[CallState, ReasonCode]:
    if 200 <= status < 300:
        return CallState.SUCCEEDED, ReasonCode.EXECUTION_SUCCEEDED
    if 400 <= status < 500 and status != 408:
        return CallState.FAILED, ReasonCode.EXECUTION_REJECTED
    return (CallState.OPEN, ReasonCode.EXECUTION_TEMPORARY) if risk == "read" else (CallState.IN_DOUBT, ReasonCode.OUTCOME_UNKNOWN)


@pytest.mark.parametrize("risk", ["read", "write", "irreversible"])
def test_every_status_falls_into_its_default_class(risk: str):
    for status in range(100, 600):
        assert booked(answered(status), risk=risk) == expected_by_default(status, risk), status


@pytest.mark.parametrize("risk", ["read", "write", "irreversible"])
def test_declared_statuses_win_over_the_default_classes(risk: str):
    declared = {
        404: (CallState.SUCCEEDED, ReasonCode.EXECUTION_NO_MATCH),
        **dict.fromkeys([409, 422, 507], (CallState.FAILED, ReasonCode.EXECUTION_REJECTED)),
        **dict.fromkeys([429, 503], (CallState.OPEN, ReasonCode.NO_EFFECT_PROVEN)),
    }
    for status in range(100, 600):
        assert booked(answered(status), risk=risk, rules=RULES) == declared.get(status, expected_by_default(status, risk)), status


@pytest.mark.parametrize("risk", ["read", "write", "irreversible"])
def test_what_was_not_sent_had_no_effect(risk: str):
    for problem in ("connect", "dns", "tls", "timeout", "exception"):
        delivery = Delivery(phase=Phase.NOT_SENT, problem=problem)
        assert booked(delivery, risk=risk, rules=RULES) == (CallState.OPEN, ReasonCode.NO_EFFECT_PROVEN)


LOST_READS = {
    "timeout": (CallState.OPEN, ReasonCode.EXECUTION_TIMEOUT),
    "reset": (CallState.OPEN, ReasonCode.EXECUTION_TEMPORARY),
    "garbage": (CallState.OPEN, ReasonCode.EXECUTION_TEMPORARY),
    "fault": (CallState.OPEN, ReasonCode.EXECUTION_TEMPORARY),
    "exception": (CallState.FAILED, ReasonCode.EXECUTION_FAILED),
}


@pytest.mark.parametrize("problem", LOST_READS)
def test_a_lost_answer_is_temporary_for_a_read_and_doubt_for_anything_else(problem: str):
    lost = Delivery(phase=Phase.LOST, problem=problem)
    assert booked(lost, risk="read") == LOST_READS[problem]
    assert booked(lost, risk="write") == (CallState.IN_DOUBT, ReasonCode.OUTCOME_UNKNOWN)
    assert booked(lost, risk="irreversible") == (CallState.IN_DOUBT, ReasonCode.OUTCOME_UNKNOWN)


@pytest.mark.parametrize("status", [200, 404, 422, 503])
def test_a_status_counts_for_nothing_when_the_answer_was_lost(status: int):
    lost = Delivery(phase=Phase.LOST, status=status, problem="reset")
    assert booked(lost, risk="write", rules=RULES) == (CallState.IN_DOUBT, ReasonCode.OUTCOME_UNKNOWN)


@pytest.mark.parametrize("risk", ["read", "write"])
def test_an_empty_array_at_the_pointer_is_no_match(risk: str):
    assert booked(answered(200, {"matches": []}), risk=risk, rules=RULES) == (CallState.SUCCEEDED, ReasonCode.EXECUTION_NO_MATCH)
    root = {"no_match": {"empty": ""}}
    assert booked(answered(200, []), risk=risk, rules=root) == (CallState.SUCCEEDED, ReasonCode.EXECUTION_NO_MATCH)


@pytest.mark.parametrize("value", [{"matches": [1]}, {"matches": {}}, {"matches": ""}, {}, [], None])
def test_anything_else_at_the_pointer_is_a_match(value: Any):
    assert booked(answered(200, value), risk="read", rules=RULES) == (CallState.SUCCEEDED, ReasonCode.EXECUTION_SUCCEEDED)


def test_an_empty_array_in_an_error_page_is_no_match_for_nobody():
    assert booked(answered(500, {"matches": []}), risk="read", rules=RULES) == (CallState.OPEN, ReasonCode.EXECUTION_TEMPORARY)


def test_a_status_in_two_classes_takes_the_one_that_promises_least():
    both = {"failed": {"status": [409]}, "no_match": {"status": [409, 404]}, "no_effect": {"status": [409, 404]}}
    assert booked(answered(409), risk="write", rules=both) == (CallState.FAILED, ReasonCode.EXECUTION_REJECTED)
    assert booked(answered(404), risk="write", rules=both) == (CallState.SUCCEEDED, ReasonCode.EXECUTION_NO_MATCH)


def test_a_success_carries_its_data():
    delivery = answered(201, {"ref": "b-1"})
    assert classify(declare_http_tool(risk="write"), Accepting(), delivery) == Outcome(
        state=CallState.SUCCEEDED, reason_code=ReasonCode.EXECUTION_SUCCEEDED, data={"ref": "b-1"}, delivery=delivery
    )


@pytest.mark.parametrize("risk", ["write", "irreversible"])
@pytest.mark.parametrize("status", [200, None])
def test_a_write_whose_answer_is_unusable_still_succeeded(risk: str, status: int | None):
    for unusable in ("invalid", "too_large"):
        delivery = answered(status, unusable=unusable)
        assert classify(declare_http_tool(risk=risk), None, delivery) == Outcome(
            state=CallState.SUCCEEDED, reason_code=ReasonCode.EXECUTION_SUCCEEDED, data_omitted=unusable, delivery=delivery
        )


def test_a_write_whose_answer_misses_its_schema_still_succeeded_without_data():
    delivery = answered(200, {"odd": True})
    assert classify(declare_http_tool(risk="write"), Refusing(), delivery) == Outcome(
        state=CallState.SUCCEEDED, reason_code=ReasonCode.EXECUTION_SUCCEEDED, data_omitted="invalid", delivery=delivery
    )


def test_a_read_whose_answer_is_invalid_failed():
    invalid = (CallState.FAILED, ReasonCode.RESULT_INVALID)
    assert booked(answered(200, unusable="invalid"), risk="read") == invalid
    assert booked(answered(200, {"odd": True}), risk="read", output=Refusing()) == invalid


def test_a_read_whose_answer_is_too_large_succeeded_without_data():
    delivery = answered(200, unusable="too_large")
    assert classify(declare_http_tool(), Refusing(), delivery) == Outcome(
        state=CallState.SUCCEEDED, reason_code=ReasonCode.EXECUTION_SUCCEEDED, data_omitted="too_large", delivery=delivery
    )


@pytest.mark.parametrize("risk", ["read", "write"])
def test_a_python_tools_rejection_is_final(risk: str):
    delivery = Delivery(phase=Phase.ANSWERED, is_rejected=True)
    rules = {"no_match": {"empty": ""}}
    assert booked(delivery, risk=risk, rules=rules) == (CallState.FAILED, ReasonCode.EXECUTION_REJECTED)


@pytest.mark.parametrize("risk", ["read", "write"])
def test_a_temporary_result_says_when_the_tool_wants_to_be_called_again(risk: str):
    no_effect = classify(declare_http_tool(risk=risk, result=RULES), None, answered(503, retry_after_ms=30_000))
    assert (no_effect.state, no_effect.retry_after_ms) == (CallState.OPEN, 30_000)
    final = classify(declare_http_tool(risk=risk), None, answered(429, retry_after_ms=30_000))
    assert (final.state, final.retry_after_ms) == (CallState.FAILED, None)
