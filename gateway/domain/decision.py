"""A decision on a call, and the refusal that a stage answers instead of passing the call on."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.catalogue import FieldError
from gateway.domain.reasons import Effect, ReasonCode

RETRY_AFTER_MS = 1_000
"""How long a caller waits before it repeats a call, where nothing better is known."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RedactResult(_Strict):
    """Blank these JSON pointers of the result before anybody sees it."""

    type: Literal["redact_result"]
    paths: Annotated[list[Annotated[str, Field(pattern=r"^/", max_length=200)]], Field(min_length=1, max_length=32)]


class RecordLevel(_Strict):
    """Record this call at another level than its tool declares."""

    type: Literal["record_level"]
    level: Literal["metadata", "arguments", "full"]


Obligation = Annotated[RedactResult | RecordLevel, Field(discriminator="type")]


class FiredRule(_Strict):
    """A rule element that matched: its effect, its package below ``policies`` and its reason code."""

    effect: Literal["allow", "deny", "confirm", "suppress"]
    policy: str
    reason_code: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What policy answered on one call, checked against what may be said."""

    effect: Effect
    reason_code: str
    policy: str | None
    rules: tuple[FiredRule, ...] = ()
    obligations: tuple[RedactResult | RecordLevel, ...] = ()
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """An approval row that a call opened or met."""

    approval_id: str
    expires_at: datetime
    summary: str


@dataclass(frozen=True, kw_only=True)
class Dissent:
    """A person's no to one exact call, as the agent is told."""

    approval_id: str
    comment: str | None
    suggested_args: Mapping[str, Any] | None
    """Arguments that the person would rather see; they fitted the tool's schema."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that a stage did not pass on. A value, not an exception: denials are data."""

    reason_code: str
    effect: Effect = Effect.DENY
    errors: tuple[FieldError, ...] = ()
    decision: Decision | None = None
    """The policy's answer, where policy was reached."""
    policy_input: bytes | None = None
    """The exact document that policy saw (JSON), where policy was reached."""
    approval: ApprovalRequest | None = None
    dissent: Dissent | None = None
    retry_after_ms: int = RETRY_AFTER_MS
    detail: str | None = None
    """For the record only (bounded); never told to the model."""


@dataclass(frozen=True, kw_only=True)
class Again:
    """A call whose facts changed between decision and admission: it goes back to a stage and is decided anew."""

    stage: str


class GatewayFault(Exception):
    """Something of the gateway's own machinery failed; the enforcer turns it into a refusal.

    GatewayFault
      Overloaded        too much is waiting; nothing was taken on
      PolicyFault       no usable answer from the policy engine
      LedgerUnavailable the database did not answer, or its answer to a commit was lost
    """

    reason_code: ReasonCode

    def __init__(self, reason_code: ReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason_code = reason_code
        self.detail = detail[:500]


class PolicyFault(GatewayFault):
    """No usable answer from the policy engine; `reason_code` is one of the POLICY_ codes."""


class LedgerUnavailable(GatewayFault):
    """The ledger did not answer. Nothing may be sent."""

    def __init__(self, detail: str) -> None:
        super().__init__(ReasonCode.LEDGER_UNAVAILABLE, detail)


class Overloaded(GatewayFault):
    """Too much is waiting. Nothing was taken on."""

    def __init__(self, detail: str) -> None:
        super().__init__(ReasonCode.OVERLOADED, detail)
