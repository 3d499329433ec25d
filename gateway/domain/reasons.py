"""Every status and reason code that an answer can carry, each with its fixed, model-safe sentence.

This is the published list: codes are never renamed. ``docs/reason-codes.md`` is generated from it.
Bundles may add codes of their own (``X_...``); those live in the bundle, see `gateway.domain.catalogue`.
"""

from enum import StrEnum
from typing import Self


class Effect(StrEnum):
    """The gateway's answer on a call."""

    ALLOW = "allow"
    DENY = "deny"
    CONFIRM = "confirm"
    SUPPRESS = "suppress"


class Status(StrEnum):
    """The discriminator of a result: what the agent gets."""

    OK = "ok"
    NO_MATCH = "no_match"
    INVALID_ARGUMENTS = "invalid_arguments"
    BLOCKED = "blocked"
    SUPPRESSED = "suppressed"
    CONFIRMATION_REQUIRED = "confirmation_required"
    TEMPORARY_ERROR = "temporary_error"
    FAILED = "failed"
    OUTCOME_UNKNOWN = "outcome_unknown"
    IN_PROGRESS = "in_progress"
    PENDING_CLIENT = "pending_client"

    @property
    def retry_same_input(self) -> bool:
        """Whether sending exactly the same call again is the right next step (now or later)."""
        return self in _RETRY_SAME_INPUT


_RETRY_SAME_INPUT = frozenset({Status.CONFIRMATION_REQUIRED, Status.TEMPORARY_ERROR, Status.IN_PROGRESS})

_DONE = "Done. Do not repeat this call."
_CORRECT = "The call was not run. Correct the arguments named in `errors` and call again."
_BLOCKED = "Not allowed. Do not call it again in this turn."
_LATER = "Nothing happened. The same call may be repeated after `retry_after_ms`."
_QUIET = "Deliberately not done; nothing is wrong. Do not look for another way."
_PERSON = "A person must agree first. Afterwards repeat this call with `approval_id`."


class ReasonCode(StrEnum):
    """Why a call was decided, or ended, as it was. `status` is None for codes that allow."""

    status: Status | None
    message: str

    def __new__(cls, code: str, status: Status | None, message: str) -> Self:
        """Make the member that is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.status = status
        member.message = message
        return member

    # Allowed: the outcome code below speaks to the model.
    USER_REQUEST_MATCHED_TOOL_SCOPE = "USER_REQUEST_MATCHED_TOOL_SCOPE", None, "Allowed: the request is within this tool's scope."
    READ_ONLY_ALLOWED = "READ_ONLY_ALLOWED", None, "Allowed: the tool only reads."
    POLICY_ALLOWED = "POLICY_ALLOWED", None, "Allowed by policy."
    APPROVAL_GRANTED = "APPROVAL_GRANTED", None, "Allowed: a person agreed to this exact call."

    # Outcomes of an allowed call.
    EXECUTION_SUCCEEDED = "EXECUTION_SUCCEEDED", Status.OK, _DONE
    EXECUTION_NO_MATCH = "EXECUTION_NO_MATCH", Status.NO_MATCH, "It ran and found nothing. The same input finds nothing again."
    EXECUTION_REJECTED = "EXECUTION_REJECTED", Status.FAILED, "The tool refused this input. It will not work with the same input."
    EXECUTION_FAILED = "EXECUTION_FAILED", Status.FAILED, "It did not work and will not work with this input."
    RESULT_INVALID = "RESULT_INVALID", Status.FAILED, "The tool's answer was unusable. It will not work with this input."
    CLIENT_SILENT = "CLIENT_SILENT", Status.FAILED, "The client did not report a result in time."
    ABANDONED = "ABANDONED", Status.FAILED, "The call was abandoned before it ended. It changed nothing."
    EXECUTION_TEMPORARY = "EXECUTION_TEMPORARY", Status.TEMPORARY_ERROR, _LATER
    EXECUTION_TIMEOUT = (
        "EXECUTION_TIMEOUT",
        Status.TEMPORARY_ERROR,
        "The tool was too slow; it changed nothing. The same call may be repeated after `retry_after_ms`.",
    )
    NO_EFFECT_PROVEN = (
        "NO_EFFECT_PROVEN",
        Status.TEMPORARY_ERROR,
        "It is certain that nothing happened. The same call may be repeated after `retry_after_ms`.",
    )
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN", Status.OUTCOME_UNKNOWN, "It may have happened. Do not repeat or replace it; it is being resolved."

    # The request.
    ARGUMENTS_INVALID = "ARGUMENTS_INVALID", Status.INVALID_ARGUMENTS, _CORRECT
    CONTEXT_INVALID = (
        "CONTEXT_INVALID",
        Status.INVALID_ARGUMENTS,
        "The call was not run. The context named in `errors` does not fit this workflow.",
    )
    CALL_ID_REUSED = (
        "CALL_ID_REUSED",
        Status.INVALID_ARGUMENTS,
        "The call was not run. One call id was used for different calls in this round; give each call its own id.",
    )
    CALL_NAME_MISSING = "CALL_NAME_MISSING", Status.INVALID_ARGUMENTS, "The call was not run. Name the tool to call."
    IDEMPOTENCY_KEY_REQUIRED = (
        "IDEMPOTENCY_KEY_REQUIRED",
        Status.BLOCKED,
        "Not allowed without an idempotency key. Do not call it again in this turn.",
    )
    IDEMPOTENCY_KEY_REUSED = (
        "IDEMPOTENCY_KEY_REUSED",
        Status.BLOCKED,
        "Not allowed: this identity already belongs to a different call. Do not call it again in this turn.",
    )
    IDEMPOTENCY_KEY_EXPIRED = (
        "IDEMPOTENCY_KEY_EXPIRED",
        Status.BLOCKED,
        "Not allowed: this idempotency key has expired. Do not call it again in this turn.",
    )
    DUPLICATE_EFFECT = (
        "DUPLICATE_EFFECT",
        Status.BLOCKED,
        "Not allowed: the same action was already taken. Do not call it again in this turn.",
    )
    IN_PROGRESS = "IN_PROGRESS", Status.IN_PROGRESS, "The same call is still running. Ask again with the same call after `retry_after_ms`."

    # Identity.
    SUBJECT_REQUIRED = "SUBJECT_REQUIRED", Status.BLOCKED, _BLOCKED
    SUBJECT_UNKNOWN = "SUBJECT_UNKNOWN", Status.BLOCKED, _BLOCKED
    DELEGATION_INVALID = "DELEGATION_INVALID", Status.BLOCKED, _BLOCKED
    WORKFLOW_UNKNOWN = "WORKFLOW_UNKNOWN", Status.BLOCKED, _BLOCKED
    WORKFLOW_NOT_ALLOWED = "WORKFLOW_NOT_ALLOWED", Status.BLOCKED, _BLOCKED
    TOOL_UNKNOWN = "TOOL_UNKNOWN", Status.BLOCKED, "There is no such tool. Do not call it again in this turn."
    TOOL_REMOVED = "TOOL_REMOVED", Status.BLOCKED, "This tool no longer exists. Do not call it again in this turn."
    TOOL_DISABLED = "TOOL_DISABLED", Status.BLOCKED, "This tool is switched off. Do not call it again in this turn."
    TOOL_NOT_IN_WORKFLOW = (
        "TOOL_NOT_IN_WORKFLOW",
        Status.BLOCKED,
        "This tool is not available in this workflow. Do not call it again in this turn.",
    )
    RISK_ABOVE_WORKFLOW = "RISK_ABOVE_WORKFLOW", Status.BLOCKED, _BLOCKED
    PERMISSION_MISSING = "PERMISSION_MISSING", Status.BLOCKED, _BLOCKED
    AGENT_SUSPENDED = "AGENT_SUSPENDED", Status.BLOCKED, _BLOCKED
    TENANT_FROZEN = "TENANT_FROZEN", Status.BLOCKED, _BLOCKED
    RUN_MISMATCH = (
        "RUN_MISMATCH",
        Status.BLOCKED,
        "Not allowed: this run belongs to another workflow or person. Do not call it again in this turn.",
    )
    RUN_CANCELLED = "RUN_CANCELLED", Status.BLOCKED, "This run was cancelled. Do not call any more tools."

    # Policy.
    DEFAULT_DENY = "DEFAULT_DENY", Status.BLOCKED, _BLOCKED
    POLICY_DENIED = "POLICY_DENIED", Status.BLOCKED, _BLOCKED
    POLICY_UNDEFINED = "POLICY_UNDEFINED", Status.BLOCKED, _BLOCKED
    POLICY_OUTPUT_INVALID = "POLICY_OUTPUT_INVALID", Status.BLOCKED, _BLOCKED
    POLICY_EVALUATION_ERROR = "POLICY_EVALUATION_ERROR", Status.BLOCKED, _BLOCKED
    OBLIGATION_UNSUPPORTED = "OBLIGATION_UNSUPPORTED", Status.BLOCKED, _BLOCKED
    POLICY_ENGINE_UNAVAILABLE = "POLICY_ENGINE_UNAVAILABLE", Status.TEMPORARY_ERROR, _LATER
    POLICY_TIMEOUT = "POLICY_TIMEOUT", Status.TEMPORARY_ERROR, _LATER
    POLICY_STALE = "POLICY_STALE", Status.TEMPORARY_ERROR, _LATER
    SUPPRESSED_QUIET_HOURS = "SUPPRESSED_QUIET_HOURS", Status.SUPPRESSED, _QUIET
    SUPPRESSED_DUPLICATE = "SUPPRESSED_DUPLICATE", Status.SUPPRESSED, _QUIET
    SUPPRESSED_FREQUENCY = "SUPPRESSED_FREQUENCY", Status.SUPPRESSED, _QUIET

    # People.
    CONFIRMATION_REQUIRED = "CONFIRMATION_REQUIRED", Status.CONFIRMATION_REQUIRED, _PERSON
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED", Status.CONFIRMATION_REQUIRED, _PERSON
    SECOND_APPROVAL_REQUIRED = (
        "SECOND_APPROVAL_REQUIRED",
        Status.CONFIRMATION_REQUIRED,
        "A second person must agree. Afterwards repeat this call with `approval_id`.",
    )
    APPROVAL_PENDING = (
        "APPROVAL_PENDING",
        Status.CONFIRMATION_REQUIRED,
        "A person has not answered yet. Afterwards repeat this call with `approval_id`.",
    )
    APPROVAL_DENIED = "APPROVAL_DENIED", Status.BLOCKED, "A person said no. Do not call it again in this turn."
    APPROVAL_EXPIRED = (
        "APPROVAL_EXPIRED",
        Status.BLOCKED,
        "The approval has expired. Do not wait for it; a new call without `approval_id` asks anew.",
    )
    APPROVAL_CONSUMED = "APPROVAL_CONSUMED", Status.BLOCKED, "The approval was already used. Do not call it again in this turn."
    APPROVAL_OUT_OF_SCOPE = (
        "APPROVAL_OUT_OF_SCOPE",
        Status.BLOCKED,
        "The approval is for a different call. Repeat exactly the approved call, or call without `approval_id`.",
    )
    APPROVAL_UNKNOWN = "APPROVAL_UNKNOWN", Status.BLOCKED, "There is no such approval. Call without `approval_id` to ask for one."

    # Limits.
    BUDGET_CALLS_EXHAUSTED = (
        "BUDGET_CALLS_EXHAUSTED",
        Status.BLOCKED,
        "A limit on the number of calls is used up. Do not call it again in this turn.",
    )
    BUDGET_COST_EXHAUSTED = (
        "BUDGET_COST_EXHAUSTED",
        Status.BLOCKED,
        "A spending limit does not leave room for this call. Do not call it again in this turn.",
    )
    BUDGET_UNIT_MISSING = "BUDGET_UNIT_MISSING", Status.BLOCKED, _BLOCKED
    LOOP_DETECTED = "LOOP_DETECTED", Status.BLOCKED, "This call failed repeatedly with the same input. Do not call it again in this turn."
    RATE_LIMITED = "RATE_LIMITED", Status.TEMPORARY_ERROR, _LATER
    CONCURRENCY_LIMITED = "CONCURRENCY_LIMITED", Status.TEMPORARY_ERROR, _LATER
    CIRCUIT_OPEN = "CIRCUIT_OPEN", Status.TEMPORARY_ERROR, _LATER
    FACTS_CHANGED = "FACTS_CHANGED", Status.TEMPORARY_ERROR, _LATER
    OVERLOADED = "OVERLOADED", Status.TEMPORARY_ERROR, _LATER
    LEDGER_UNAVAILABLE = "LEDGER_UNAVAILABLE", Status.TEMPORARY_ERROR, _LATER


# What each effect of a policy answer may say; anything else is POLICY_OUTPUT_INVALID.
POLICY_CODES: dict[Effect, frozenset[ReasonCode]] = {
    Effect.ALLOW: frozenset(code for code in ReasonCode if code.status is None),
    Effect.DENY: frozenset({ReasonCode.DEFAULT_DENY, ReasonCode.POLICY_DENIED}),
    Effect.CONFIRM: frozenset({ReasonCode.CONFIRMATION_REQUIRED, ReasonCode.APPROVAL_REQUIRED}),
    Effect.SUPPRESS: frozenset(code for code in ReasonCode if code.status is Status.SUPPRESSED),
}
EFFECT_STATUS: dict[Effect, Status | None] = {
    Effect.ALLOW: None,
    Effect.DENY: Status.BLOCKED,
    Effect.CONFIRM: Status.CONFIRMATION_REQUIRED,
    Effect.SUPPRESS: Status.SUPPRESSED,
}
