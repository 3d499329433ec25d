"""Decision cases: one call in a stated situation, and the decision that the bundle must give."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gateway.domain.call import CallCount, Facts, PastCall
from gateway.domain.catalogue import Declaration, EffectField
from gateway.domain.reasons import Effect

Text = Annotated[str, Field(min_length=1, max_length=200)]


def parse_time(value: object) -> datetime:
    """Read an RFC 3339 time with its offset; ValueError otherwise."""
    msg = "must be a time with its zone, such as 2026-03-01T10:00:00Z"
    if not isinstance(value, str) or "T" not in value:
        raise ValueError(msg)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(msg) from None
    if time.tzinfo is None:
        raise ValueError(msg)
    return time


Time = Annotated[datetime, BeforeValidator(parse_time)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class PastCallFact(Declaration):
    """One earlier call of the run."""

    tool: Text
    status: Text
    reason_code: Text | None = None
    at: Time


class RunFacts(Declaration):
    """The run before the call."""

    calls: Count = 0
    failures: Count = 0
    history: list[PastCallFact] = Field(default_factory=list[PastCallFact], max_length=20)


class CountFact(Declaration):
    """How often calls were made that may have had an effect."""

    count: Count = 0
    last_at: Time | None = None
    last_status: Text | None = None

    def as_count(self) -> CallCount:
        """The value that stages know."""
        return CallCount(count=self.count, last_at=self.last_at, last_status=self.last_status)


class RecentFacts(Declaration):
    """The same call, and the same tool, for this subject."""

    same_call: CountFact = CountFact()
    same_tool: CountFact = CountFact()


class CaseFacts(Declaration):
    """What the ledger would say."""

    run: RunFacts = RunFacts()
    recent: RecentFacts = RecentFacts()

    def as_facts(self) -> Facts:
        """The value that stages know."""
        return Facts(
            run_calls=self.run.calls,
            run_failures=self.run.failures,
            history=tuple(
                PastCall(tool=past.tool, status=past.status, reason_code=past.reason_code, at=past.at) for past in self.run.history
            ),
            same_call=self.recent.same_call.as_count(),
            same_tool=self.recent.same_tool.as_count(),
        )


class Expectation(Declaration):
    """The decision that must come out; without a reason code any code of that effect will do."""

    effect: EffectField
    reason_code: Text | None = None


class Case(Declaration):
    """One entry of ``cases/*.yaml``. Without `expect` the call must be denied."""

    name: Text
    agent: Text
    subject: Text | None = None
    workflow: Text
    tool: Text
    args: dict[str, Any] = Field(default_factory=dict[str, Any])
    context: dict[str, Any] = Field(default_factory=dict[str, Any])
    now: Time
    facts: CaseFacts = CaseFacts()
    expect: Expectation = Expectation(effect=Effect.DENY)
