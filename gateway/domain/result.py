"""The result union: what an agent gets for one call, discriminated by ``status`` (wire version 1)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.reasons import Effect


class Wire(BaseModel):
    """Base of what goes over the wire: frozen; readers ignore fields that they do not know yet."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ArgumentError(Wire):
    """One thing to correct: a JSON pointer into the arguments and a sentence, never the value."""

    path: str
    message: str


class _Result(Wire):
    reason_code: str
    message: str
    retry_same_input: bool


class Ok(_Result):
    """Done; do not repeat."""

    status: Literal["ok"] = "ok"
    data: Any = None
    data_omitted: Literal["invalid", "too_large", "expired", "not_permitted"] | None = None


class NoMatch(_Result):
    """It ran and found nothing."""

    status: Literal["no_match"] = "no_match"


class InvalidArguments(_Result):
    """Nothing ran; correct the arguments."""

    status: Literal["invalid_arguments"] = "invalid_arguments"
    errors: list[ArgumentError]


class Blocked(_Result):
    """Not allowed. Where a person said no: which approval it was, what they wrote, and arguments that they would rather see."""

    status: Literal["blocked"] = "blocked"
    approval_id: str | None = None
    comment: str | None = None
    suggested_args: dict[str, Any] | None = None


class Suppressed(_Result):
    """Deliberately not done."""

    status: Literal["suppressed"] = "suppressed"
    until: datetime | None = None


class ConfirmationRequired(_Result):
    """A person must agree; repeat the call with the approval id afterwards."""

    status: Literal["confirmation_required"] = "confirmation_required"
    approval_id: str
    expires_at: datetime
    summary: str


class TemporaryError(_Result):
    """Nothing happened; the same call may be repeated after `retry_after_ms`."""

    status: Literal["temporary_error"] = "temporary_error"
    retry_after_ms: int


class Failed(_Result):
    """It did not work and will not with this input."""

    status: Literal["failed"] = "failed"


class OutcomeUnknown(_Result):
    """It may have happened; do not repeat or replace it."""

    status: Literal["outcome_unknown"] = "outcome_unknown"


class InProgress(_Result):
    """The same call is still running."""

    status: Literal["in_progress"] = "in_progress"
    retry_after_ms: int


class PendingClient(_Result):
    """Allowed; the client performs it and posts the result."""

    status: Literal["pending_client"] = "pending_client"
    execution_id: str
    expires_at: datetime
    kind: str
    args: dict[str, Any]


Result = Annotated[
    Ok
    | NoMatch
    | InvalidArguments
    | Blocked
    | Suppressed
    | ConfirmationRequired
    | TemporaryError
    | Failed
    | OutcomeUnknown
    | InProgress
    | PendingClient,
    Field(discriminator="status"),
]


class CallName(Wire):
    """Which call an answer belongs to; `id` is absent where the model gave none."""

    id: str | None = None
    name: str | None = None


class DecisionView(Wire):
    """How the call was decided. `policy` and `revision` are null where no policy was reached."""

    effect: Effect
    reason_code: str
    stage: str
    policy: str | None = None
    revision: str | None = None


class Answer(Wire):
    """The answer on one call. `decision_id` names a record; it is null only for LEDGER_UNAVAILABLE."""

    decision_id: str | None
    call: CallName
    decision: DecisionView
    result: Result
    replayed: bool = False


class RoundAnswer(Wire):
    """The answers on a round, one per call in the order of the calls."""

    results: list[Answer]
    turn: Any = None
    """Only where a dialect was named: the turn that answers the model's, in that dialect; null where it held no calls."""
