"""The seams: what the enforcer and its stages need from the outside, each with one contract suite in tests/contract."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from gateway.domain.approvals import Approval, ApprovalFact, ApprovalState, Verdict
from gateway.domain.call import Authorized, CallNow, Decided, Dispatch, Facts, Informed, KnownCall, Normalized, Proposed
from gateway.domain.catalogue import PolicySet, Replay, ToolDeclaration
from gateway.domain.decision import Again, ApprovalRequest, Refusal
from gateway.domain.in_force import Controls, RestrictionKind
from gateway.domain.keys import KeyGrant, StoredKey
from gateway.domain.outcome import CallState, Outcome
from gateway.domain.principal import Caller
from gateway.domain.record import RecordDraft
from gateway.domain.search import Search


class PolicyEngine(Protocol):
    """A Rego engine (PDP)."""

    @property
    def name(self) -> str:
        """Engine and version, as records name it; a service's version is the one that its last answer told."""
        ...

    async def is_ready(self) -> bool:
        """Whether it decides now under the active revision. Never raises."""
        ...

    async def activate(self, policies: PolicySet) -> None:
        """Let a checked revision decide, beside those that do already. PolicyFault leaves everything as it was.

        An engine that pulls what is in force by itself only takes note.
        """
        ...

    async def retain(self, revisions: AbstractSet[str]) -> None:
        """Unload every revision but these; evaluations that were begun still get their answers."""
        ...

    async def decide(self, revision: str, document: bytes) -> Any:
        """Evaluate ``data.gateway.decision`` with `document` (JSON) as input under `revision`.

        Returns the raw answer as parsed JSON, unchecked. Raises PolicyFault: POLICY_UNDEFINED, POLICY_TIMEOUT,
        POLICY_EVALUATION_ERROR, POLICY_ENGINE_UNAVAILABLE, or POLICY_STALE where `revision` is not loaded.
        """
        ...

    async def close(self) -> None:
        """End every worker or connection."""
        ...


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One call as an executor needs it."""

    decision_id: UUID
    tool: ToolDeclaration
    args: Mapping[str, Any]
    context: Mapping[str, Any]
    tenant: str
    agent: str
    subject: str
    run_id: str
    downstream_key: str
    """Equal for all attempts of one call; services that deduplicate get it as their idempotency key."""


class Executor(Protocol):
    """Makes calls real in one way (http, python)."""

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:
        """Why this tool cannot run here (unknown connection, missing function), or None. Asked at activation."""
        ...

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:
        """Take everything that can block or refuse (slot, connection's credential, the built request); send nothing."""
        ...

    async def close(self) -> None:
        """Close connections and threads."""
        ...


@dataclass(frozen=True, kw_only=True)
class ControlRow:
    """What is in force for a tenant, as the ledger has it."""

    revision: str
    epoch: int
    digest_key: bytes = field(repr=False)
    files: bytes = field(repr=False)
    """The packed files of the revision; empty where they are not kept, or were not asked for."""
    controls: Controls


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """A revision on its way into the ledger, after its checks."""

    revision: str
    files: bytes = field(repr=False)
    """Packed."""
    name: str
    """The bundle's own name."""
    by: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class KeptRevision:
    """A revision that the ledger keeps; the last two are None where it was never in force."""

    revision: str
    name: str
    note: str
    pushed_by: str
    pushed_at: datetime
    is_active: bool
    activated_by: str | None
    activated_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A kept revision with its packed files."""

    about: KeptRevision
    files: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Restriction:
    """Something that an operator took out of service."""

    kind: RestrictionKind
    name: str
    """Empty for the whole tenant."""
    reason: str
    restricted_by: str
    restricted_at: datetime


class RevisionStore(Protocol):
    """Revisions and what is in force. Every method may raise LedgerUnavailable."""

    async def read_epochs(self) -> Mapping[str, int]:
        """The epoch of every tenant that has a revision in force."""
        ...

    async def read_in_force(self, tenant: str, *, known_epoch: int | None) -> ControlRow | None:
        """What is in force for a tenant, in one snapshot (without files where it is `known_epoch`); None where nothing is."""
        ...

    async def load(self, tenant: str, revision: str) -> bytes | None:
        """The packed files of a revision; None where it is not kept."""
        ...

    async def push(self, tenant: str, pushed: Pushed) -> None:
        """Keep a revision that passed its checks. Pushing it again changes nothing."""
        ...

    async def activate(self, tenant: str, pushed: Pushed, record: RecordDraft, *, replaces: str | None) -> ControlRow | str:
        """Keep a revision and put it in force, with its record, in one transaction.

        Only the revision `replaces` is replaced; where another one is in force, it is answered and nothing changes.
        A revision that is in force already stays so, without a record.
        """
        ...

    async def list_revisions(self, tenant: str, *, before: tuple[datetime, str] | None, limit: int) -> Sequence[KeptRevision]:
        """Kept revisions, newest first; `before` is (pushed_at, revision) of the last one of the page before."""
        ...

    async def get(self, tenant: str, revision: str) -> Kept | None:
        """One kept revision with its packed files."""
        ...

    async def revision_before(self, tenant: str) -> str | None:
        """The last other revision that was in force before the active one."""
        ...

    async def restrict(self, tenant: str, kind: RestrictionKind, name: str, *, reason: str, by: str, record: RecordDraft) -> bool | None:
        """Take an agent, a tool or the tenant out of service, with a record. False where it was already; None where the tenant is unknown."""
        ...

    async def release(self, tenant: str, kind: RestrictionKind, name: str, record: RecordDraft) -> bool | None:
        """Put it back into service, with a record. False where it was in service; None where the tenant is unknown."""
        ...

    async def list_restrictions(self, tenant: str) -> Sequence[Restriction]:
        """What is out of service, and why."""
        ...


class Ledger(Protocol):
    """The PostgreSQL side. Every method may raise LedgerUnavailable; after it nothing may be sent."""

    async def recall(self, tenant: str, agent: str, transport_key: bytes) -> KnownCall | None:
        """The call that holds a transport key, whatever its state."""
        ...

    async def look_again(self, tenant: str, decision_id: UUID) -> tuple[CallState, Mapping[str, Any] | None]:
        """The state of an admitted call as it stands now, and the result of its answer once there is one."""
        ...

    async def read_facts(self, call: Authorized, business_key: bytes | None) -> Facts | KnownCall | Refusal:
        """One snapshot: both keys, run, recent calls, approval; or the live call that holds a key; or RUN_MISMATCH."""
        ...

    async def admit(self, call: Decided, record: RecordDraft) -> Refusal | KnownCall | Again | None:
        """One transaction: control row, claims, run, budgets, grant, call, record with its position. None: committed.

        A Refusal (budget, stale revision), a KnownCall (somebody else was first) or Again (the facts changed) leaves
        nothing behind. In a dry run the budgets are only read and nothing is written.
        """
        ...

    async def settle(self, call: Normalized, record: RecordDraft, result: Mapping[str, Any]) -> bool:
        """One transaction: the call's end, its budgets and its outcome record. Safe to repeat.

        False where it no longer counts: the call has ended, or a resolver has taken it over.
        """
        ...

    async def find_standing_approval(self, call: Informed) -> ApprovalFact | None:
        """The approval that stands for a call that names none: a no in its run, else one that is pending or granted."""
        ...

    async def refuse(self, call: Proposed, refusal: Refusal, record: RecordDraft, document: bytes | None) -> ApprovalRequest | None:
        """Commit the record of a refused call. With a `document`, opens or finds the approval that the call needs.

        `document` is what a person will be shown of the call (JSON), from `gateway.domain.drafts.approval_document`.
        """
        ...

    async def report(self, decision_id: UUID, outcome: Outcome, record: RecordDraft, result: Mapping[str, Any], *, is_read: bool) -> bool:
        """One transaction: what a client says of the call that it was handed, with its budgets and its record.

        Counts once, for a read only in time. False where it does not count.
        """
        ...

    async def note_replay(self, call: Proposed, known: KnownCall, record: RecordDraft) -> None:
        """Commit the record of a call that was answered from the ledger, linked to the decision that it repeats."""
        ...

    async def note(self, record: RecordDraft, about: UUID | None) -> None:
        """Commit a record that changes nothing else, linked to the decision that it is about."""
        ...

    async def get_call(self, tenant: str, agent: str, decision_id: UUID) -> CallNow | None:
        """An agent's call as it stands; None where this agent has no such decision."""
        ...


Spend = Literal["hold", "all", "calls", "nothing"]
"""What becomes of a call's holds: kept while in doubt, spent in full, spent as a call only, or given back."""


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A call in doubt that this gateway has taken over under a new fence."""

    tenant: str
    decision_id: UUID
    fence: int
    attempts: int
    replay: Replay
    age_s: float
    """Seconds since it was admitted, by the database's clock."""
    agent: str
    subject: str
    run_id: str
    tool: str
    revision: str
    args: Mapping[str, Any]
    context: Mapping[str, Any]
    record: Mapping[str, Any]
    """The record of its decision."""


class RecoveryLedger(Protocol):
    """What recovery needs of the ledger. Every method may raise LedgerUnavailable."""

    async def reap(self, tenant: str) -> int:
        """End the leases that are over: reads are abandoned, everything else is in doubt. Executes nothing."""
        ...

    async def take_doubts(self, tenant: str, *, hold_s: float) -> list[Doubt]:
        """Take over doubts that are due, each under a new fence, for their lease and `hold_s` seconds more."""
        ...

    async def resolve(
        self, doubt: Doubt, *, state: CallState, result: Mapping[str, Any], spend: Spend, evidence: Mapping[str, Any]
    ) -> bool:
        """End a doubt that this gateway took over; False where another fence has it by now."""
        ...

    async def postpone(self, doubt: Doubt, seconds: float | None) -> None:
        """Give a doubt back: to be looked at again after some seconds, or by a person (None)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Arguments that a person would rather see, and their keyed digest for the record."""

    args: Mapping[str, Any]
    digest: str


class Approvals(Protocol):
    """What persons see and answer. Every method may raise LedgerUnavailable."""

    async def find(self, tenant: str, approval_id: UUID) -> Approval | None:
        """An approval with all answers to it; None where this tenant has none of that id."""
        ...

    async def page(
        self, tenant: str, state: ApprovalState, *, permissions: Sequence[str], person: str, after: UUID | None, limit: int
    ) -> Sequence[Approval]:
        """Approvals in a state that need one of `permissions`, or the `person` itself as their subject; oldest first."""
        ...

    async def answer(
        self,
        tenant: str,
        approval_id: UUID,
        verdict: Verdict,
        *,
        person: str,
        comment: str | None,
        suggestion: Suggestion | None,
        record_id: UUID,
    ) -> bool:
        """Commit one person's answer with its record; False where it no longer counts or this person has answered already."""
        ...

    async def note_refused(self, tenant: str, approval_id: UUID, verdict: Verdict, *, by: str, objection: str, record_id: UUID) -> None:
        """Commit the record of an answer by somebody who may not give it; nothing where there is no such approval."""
        ...

    async def expire(self, tenant: str) -> int:
        """End the approvals whose time is over, each with its record; answers how many."""
        ...


@dataclass(frozen=True, kw_only=True)
class CallSummary:
    """An admitted call as operators see it: never arguments or results."""

    decision_id: UUID
    state: CallState
    status: str | None
    reason_code: str | None
    agent: str
    subject: str
    run_id: str
    workflow: str
    tool: str
    replay: Replay
    admitted_at: datetime
    lease_until: datetime
    finished_at: datetime | None
    attempts: int


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One budget in one scope and window. Amounts in micro-units of the unit; `limit` is None once the bundle dropped it."""

    name: str
    scope: str
    period: str
    unit: str
    limit: int | None
    reserved: int
    spent: int


class Operations(Protocol):
    """What operators see and do. Every method may raise LedgerUnavailable."""

    async def list_calls(self, tenant: str, state: CallState, *, after: UUID | None, limit: int) -> Sequence[CallSummary]:
        """Calls in a state, oldest first; `after` is the last decision id of the page before."""
        ...

    async def resolve_call(
        self, tenant: str, decision_id: UUID, *, happened: bool, evidence: str, by: str, record_id: UUID
    ) -> CallState | None:
        """End the doubt about a call: it happened (succeeded, without data) or it did not (open, budgets given back).

        Writes a resolution record with the evidence, under `record_id`. Answers the state that the call is in now; where it was not in
        doubt, the state that it already had; None where this tenant has no such call.
        """
        ...

    async def list_budgets(self, tenant: str, *, after: tuple[str, str, str] | None, limit: int) -> Sequence[BudgetRow]:
        """Budgets that were ever drawn on, by (name, scope, period); `after` is the last key of the page before."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A record as it is stored: its exact bytes (JSON) and the leaf hash of them."""

    position: int
    body: bytes
    leaf: bytes


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """One page of records in the order that was asked for."""

    records: tuple[StoredRecord, ...]
    bound: int | None
    """Where the next page begins (its `high` for newest first, else its `low`); None where there is none.

    A page may have fewer records than asked for, even none, and still have a bound: matches are rare, and a page looks at
    a bounded number of records.
    """


@dataclass(frozen=True, kw_only=True)
class LogQuery:
    """A search over the decision log of one tenant, within positions [low, high)."""

    tenant: str
    search: Search = field(default_factory=Search)
    low: int = 0
    high: int | None = None
    """None: up to the newest record."""
    limit: int = 50
    newest_first: bool = True


@dataclass(frozen=True, kw_only=True)
class LogCounts:
    """How many records match."""

    total: Mapping[str | None, int]
    """By effect; None for records that have none."""
    by_field: Mapping[str, Mapping[str, Mapping[str | None, int]]]
    """Field of a record -> value -> effect -> count."""
    is_complete: bool
    """False where only the newest matches were counted."""


class DecisionLog(Protocol):
    """Read access to records. Every method may raise LedgerUnavailable."""

    async def find(self, query: LogQuery) -> LogPage:
        """One page, stable while records arrive."""
        ...

    async def count(self, query: LogQuery, fields: Sequence[str]) -> LogCounts:
        """How many records match, in all and by the values of some fields; `limit` does not count."""
        ...

    async def read_size(self, tenant: str) -> int:
        """How many records there are: the position that the next one gets."""
        ...

    async def get(self, tenant: str, decision_id: UUID) -> dict[str, Any] | None:
        """``{record, linked, payloads}``: a record, the records linked to it, and which payloads there are of them (no more).

        None where this tenant has no such record.
        """
        ...

    async def reveal(self, tenant: str, decision_id: UUID) -> dict[str, Any]:
        """The redacted payloads of a record and of those linked to it, by kind. Whoever asks has written down why."""
        ...


@dataclass(frozen=True, kw_only=True)
class LogCheckpoint:
    """How far a log is signed."""

    note: str | None
    """The last checkpoint, a C2SP signed note; None before the first."""
    size: int
    """Records that it covers."""
    log_size: int
    published_at: datetime | None
    behind_s: float
    """For how long there have been records that it does not cover."""
    alarm: str | None
    """Why nothing is signed at the moment."""


@dataclass(frozen=True, kw_only=True)
class RecordProof:
    """A record with the path from its leaf to the root that a checkpoint signs (RFC 6962, 2.1.1)."""

    decision_id: UUID
    position: int
    record: bytes
    note: str
    inclusion: Sequence[bytes]


@dataclass(frozen=True, kw_only=True)
class NotCovered:
    """No checkpoint covers the record yet."""

    alarm: str | None


class Erasure(Protocol):
    """Destroying what was kept about a subject. May raise LedgerUnavailable."""

    async def erase(self, tenant: str, subject: str, *, by: str, reason: str, record_id: UUID) -> int:
        """Destroy the data keys of a subject, with a record; how many there were. Nothing that they sealed can be read again."""
        ...


class LogEvidence(Protocol):
    """What proves the log. Every method may raise LedgerUnavailable."""

    async def checkpoint(self, tenant: str) -> LogCheckpoint | None:
        """The log's last checkpoint and what it does not cover yet; None where this tenant has no log."""
        ...

    async def prove(self, tenant: str, decision_id: UUID) -> RecordProof | NotCovered | None:
        """The proof of a record under the last checkpoint; None where this tenant has no such record."""
        ...

    async def extends(self, tenant: str, old: int, size: int) -> Sequence[bytes]:
        """The proof that the log of `size` signed records extends the one of `old` records (RFC 6962, 2.1.2)."""
        ...


@dataclass(frozen=True, kw_only=True)
class MadeKey:
    """A new key; nothing else ever holds it."""

    key_id: UUID
    key: str = field(repr=False)


class KeyStore(Protocol):
    """Keys that the gateway made. Every method may raise LedgerUnavailable."""

    async def find(self, digest: bytes) -> Caller | None:
        """Who asks with the key of that digest; None where it opens nothing (unknown, expired, revoked)."""
        ...

    async def create(self, grant: KeyGrant, *, key_id: UUID, record_id: UUID, ttl_s: float | None, by: str) -> MadeKey:
        """Make a key with its record, for some seconds or until it is revoked. Only the answer holds it."""
        ...

    async def rotate(self, tenant: str, key_id: UUID, *, new_id: UUID, record_id: UUID, overlap_s: float, by: str) -> MadeKey | str:
        """Make a successor with the same grants and the same time to live; the old key ends after `overlap_s`.

        Or UNKNOWN (this tenant has no such key), NOT_LIVE, TWO_LIVE_KEYS (a successor lives already).
        """
        ...

    async def revoke(self, tenant: str, key_id: UUID, *, record_id: UUID, by: str) -> bool | None:
        """End a key at once, with its record. False where it was revoked already; None where this tenant has no such key."""
        ...

    async def list_keys(self, tenant: str, *, after: UUID | None, limit: int) -> Sequence[StoredKey]:
        """Keys by id, which is by time; `after` is the last one of the page before."""
        ...
