"""A call at each step of its path: every stage takes one of these values and returns the next one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

from gateway.domain.approvals import ApprovalFact, ApprovalState
from gateway.domain.authority import Scope
from gateway.domain.catalogue import Bundle, FieldError, Tool
from gateway.domain.decision import Decision
from gateway.domain.in_force import Controls, InForce
from gateway.domain.outcome import CallState, Delivery, Outcome
from gateway.domain.principal import Caller, Principal
from gateway.domain.trail import Trail

LEASE_GRACE_S = 5.0
"""A lease is the tool's timeout and this much more; the sender must have begun within it (seconds)."""

LIVE_STATES = frozenset({CallState.RUNNING, CallState.PENDING_CLIENT, CallState.IN_DOUBT, CallState.SUCCEEDED})
"""States of calls that had an effect or may still have one."""


@dataclass(frozen=True, kw_only=True)
class ProposedCall:
    """What the model wrote, untrusted, with what the agent service put beside it."""

    id: str | None = None
    """The model's id for the call; never invented, never used as a key across rounds."""
    name: str | None = None
    args: Any = None
    """Any JSON value; absent, null and ``{}`` are the same call."""
    defects: tuple[FieldError, ...] = ()
    """What was wrong with the text of the arguments already while it was read."""
    idempotency_key: str | None = None
    approval_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """A call as it enters: authenticated, under one bundle revision, with its one `now` and its decision id."""

    caller: Caller
    bundle: Bundle
    digest_key: bytes = bytes(32)
    """The tenant's key for digests in records."""
    epoch: int = 0
    """The epoch that `bundle` and `controls` belong to; the call is admitted only while it lasts."""
    controls: Controls = field(default_factory=Controls)
    decision_id: UUID
    now: datetime
    workflow_name: str
    run_id: str
    on_behalf_of: str | None
    context: Mapping[str, Any]
    call: ProposedCall
    round: tuple[UUID, int] | None = None
    """The round and the call's position in it, where there is one."""
    trace_id: str | None = None
    is_dry_run: bool = False
    trail: Trail = field(default_factory=Trail)
    """Stages passed so far with their outcomes and times, for the record."""

    def under(self, in_force: InForce) -> Self:
        """The same call under what is in force now."""
        return replace(self, bundle=in_force.bundle, digest_key=in_force.digest_key, epoch=in_force.epoch, controls=in_force.controls)

    @classmethod
    def after(cls, earlier: "Proposed", **found: Any) -> Self:
        """The next step of `earlier`: all that it knew, and what a stage found."""
        # As the constructor would make it, at a tenth of the cost: what was found goes through it ten times a call.
        step = object.__new__(cls)
        vars(step).update(vars(earlier), **found)
        return step


@dataclass(frozen=True, kw_only=True)
class Recalled(Proposed):
    """After *recall*: not seen before under its transport key."""

    fingerprint: bytes
    """SHA-256 over tool, subject and arguments as the model wrote them (32 bytes)."""
    transport_key: bytes | None
    """SHA-256 of the idempotency key, where the agent gave one (32 bytes)."""


@dataclass(frozen=True, kw_only=True)
class Resolved(Recalled):
    """After *resolve*: the tool is known and exposed in a workflow that the agent was granted."""

    tool: Tool
    scope: Scope


@dataclass(frozen=True, kw_only=True)
class Validated(Resolved):
    """After *validate*: arguments and context fit their schemas."""

    args: dict[str, Any]
    """Normalised (integral floats as integers), nothing filled in."""


@dataclass(frozen=True, kw_only=True)
class Authorized(Validated):
    """After *authorize*: agent and subject both have every permission of the tool."""

    principal: Principal


@dataclass(frozen=True, kw_only=True)
class CallCount:
    """How often calls were made that may have had an effect, and how the last of them ended."""

    count: int = 0
    last_at: datetime | None = None
    last_status: str | None = None


class PastCall(NamedTuple):
    """One earlier call of the run, as policies see it."""

    tool: str
    status: str
    reason_code: str | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one ledger snapshot says about a call's run, its recent twins and its approval."""

    run_version: int = 0
    """How many calls of the run were admitted; compared at admission."""
    tool_version: int = 0
    """How many calls of the tool were admitted for the subject; compared at admission."""
    input_failures: int = 0
    """Executed failures of equal input in this run."""
    run_calls: int = 0
    run_failures: int = 0
    history: tuple[PastCall, ...] = ()
    """Newest last, at most 20."""
    same_call: CallCount = CallCount()
    same_tool: CallCount = CallCount()
    approval: ApprovalFact | None = None


@dataclass(frozen=True, kw_only=True)
class Informed(Authorized):
    """After *facts*: what the ledger knows, the call's business identity and its cost."""

    facts: Facts
    business_key: bytes | None
    """SHA-256 of the tool's business key values (32 bytes)."""
    effect_hash: bytes
    """SHA-256 of what will actually run; approvals bind to it (32 bytes)."""
    costs: Mapping[str, int]
    """Unit -> micro-units, as the tool declares them for these arguments."""


@dataclass(frozen=True, kw_only=True)
class Decided(Informed):
    """After *decide*: policy allows the call."""

    decision: Decision
    policy_input: bytes
    """The exact document that policy saw (JSON)."""
    engine: str
    grant: UUID | None = None
    """The approval that the call named and that holds; admission consumes it."""


@dataclass(frozen=True, kw_only=True)
class Admitted(Decided):
    """After *admit*: decision, claims, budgets and log position are committed; only the send lies ahead."""

    dispatch: "Dispatch"
    send_before: float
    """Boot time (seconds) after which it must not be sent any more: its lease might end before the tool answers."""
    identity: Mapping[str, Any] | None = None
    """Who calls what, as its records say it (`gateway.domain.drafts.identity_of`); None: not written down yet."""


@dataclass(frozen=True, kw_only=True)
class Executed(Admitted):
    """After *execute*."""

    delivered: Delivery


@dataclass(frozen=True, kw_only=True)
class Normalized(Executed):
    """After *normalize*."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Settled(Normalized):
    """After *settle*: the outcome is committed."""

    answer: dict[str, Any]
    """What the agent is told (wire form)."""


@dataclass(frozen=True, kw_only=True)
class KnownCall:
    """A call that the ledger already answers for, found by one of its two identities."""

    kind: Literal["transport", "business"]
    """The identity that it was found by."""
    decision_id: UUID
    state: CallState
    agent: str
    subject: str
    tool: str
    fingerprint: bytes
    told: Mapping[str, Any] | None
    """Call and decision of its answer (wire form); None where it was never admitted."""
    result: Mapping[str, Any] | None
    """The result of its answer (wire form); None while it runs."""
    is_expired: bool = False
    """Past its time: a transport key never executes again, a business key is free again."""

    def holds(self, fingerprint: bytes) -> bool:
        """Whether its claim still stands against a call with `fingerprint`.

        A business key is held by calls that may have had an effect, inside its window. A transport key stands for
        whatever ended, and for any other input under the same key; only an open call with the same input goes on.
        """
        if self.kind == "business":
            return self.state in LIVE_STATES and not self.is_expired
        return self.is_expired or self.state is not CallState.OPEN or self.fingerprint != fingerprint


@dataclass(frozen=True, kw_only=True)
class CallNow:
    """A decided call as it stands: its state, and what can be told about it."""

    state: CallState
    told: Mapping[str, Any] | None
    """Call and decision of its answer (wire form); None for refused calls."""
    result: Mapping[str, Any] | None
    """The result of its answer (wire form), or what its client is to perform; None while it runs and for refused calls."""
    record: Mapping[str, Any]
    """The decision's record."""
    approval: ApprovalFact | None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it by itself: it has ended, was refused, or a person has answered."""
        if self.told is None:
            return self.approval is None or self.approval.now is not ApprovalState.PENDING
        return self.state not in (CallState.RUNNING, CallState.IN_DOUBT, CallState.PENDING_CLIENT)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A call that is answered from the ledger instead of going on."""

    known: KnownCall
    is_permitted: bool
    """Whether the caller may still see the tool; if not, the status is told without data."""


class Dispatch:
    """A prepared, not yet sent execution: everything that can block or refuse was taken before admission."""

    async def send(self) -> Delivery:
        """Deliver to the tool: a write once, a read again where `may_repeat`, all within the tool's timeout."""
        raise NotImplementedError

    def may_repeat(self) -> bool:
        """Whether a further `send` is allowed at this moment."""
        return False

    def release(self) -> None:
        """Give the slot back; called exactly once, sent or not."""
        raise NotImplementedError
