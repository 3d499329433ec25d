"""Runs whose model loop the gateway owns: their values, how they end, and what the loop needs of the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from gateway.domain.outcome import CallState
from gateway.domain.record import RecordDraft

MAX_PROMPT_CHARACTERS = 32_768
MAX_TURN_BYTES = 1_048_576
"""One answer of the model as it came over the wire."""
MAX_CONVERSATION_BYTES = 4_194_304
"""Everything that would be sent to the model in one request."""
MAX_ANSWER_CHARACTERS = 131_072
"""Of the text that ends a run; what is longer is cut."""


class RunState(StrEnum):
    """States of a run."""

    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEnd(StrEnum):
    """How a run ended, as ``reason_code`` of its last event. Bounded and never renamed; `message` is for people."""

    message: str
    is_resumable: bool

    def __new__(cls, code: str, message: str, *more: str) -> Self:
        """Make the member that is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.is_resumable = more == ("resumable",)
        return member

    RUN_ANSWERED = "RUN_ANSWERED", "The model answered."
    RUN_CANCELLED = "RUN_CANCELLED", "The run was cancelled. Calls that were under way ended on their own; no further one is let in."
    RUN_ROUNDS_EXHAUSTED = "RUN_ROUNDS_EXHAUSTED", "The run used up its rounds."
    RUN_TIME_EXHAUSTED = "RUN_TIME_EXHAUSTED", "The run used up its time."
    RUN_MODEL_CALLS_EXHAUSTED = "RUN_MODEL_CALLS_EXHAUSTED", "The run used up its model calls, repetitions included."
    RUN_TOKENS_EXHAUSTED = "RUN_TOKENS_EXHAUSTED", "The run used up its tokens."
    RUN_TOO_LARGE = "RUN_TOO_LARGE", "The conversation or a turn of the model grew beyond what is sent or stored."
    RUN_NOT_ALLOWED = "RUN_NOT_ALLOWED", "The agent may at present not use this workflow for this subject.", "resumable"
    RUN_BROKEN = "RUN_BROKEN", "A defect of the gateway ended the run; its log says more.", "resumable"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE", "The model did not answer. Resume the run later.", "resumable"
    MODEL_REFUSED = "MODEL_REFUSED", "The model's service refused the request itself."
    MODEL_STOPPED = "MODEL_STOPPED", "The model was stopped by its service's rules, such as safety."
    MODEL_TRUNCATED = "MODEL_TRUNCATED", "The model's answer was longer than its service allows."
    MODEL_MALFORMED = "MODEL_MALFORMED", "The model kept writing calls that cannot be read."
    MODEL_REPEATS = "MODEL_REPEATS", "The model kept making exactly the same calls."
    MODEL_SILENT = "MODEL_SILENT", "The model said nothing."


@dataclass(frozen=True, kw_only=True)
class RunKey:
    """Which run: a run id belongs to one agent of one tenant."""

    tenant: str
    agent: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What one run may use. Repeated model calls count too."""

    rounds: int = 16
    model_calls: int = 32
    tokens: int = 500_000
    duration_s: float = 1_800.0


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to start."""

    key: RunKey
    workflow: str
    subject: str
    model: str
    prompt: str
    context: Mapping[str, Any]
    bounds: Bounds
    start_key: bytes | None
    """SHA-256 of the Idempotency-Key that it was started with (32 bytes): the same key is the same run."""
    request_digest: bytes
    """SHA-256 of the request (32 bytes)."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a run before it is stored."""

    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StoredEvent:
    """One event of a run. Ids begin at 1 and have no gaps."""

    id: int
    type: str
    at: datetime
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of the model, whole, and what answered it."""

    number: int
    """From 0."""
    response: bytes
    """The body of the model's answer exactly as it came (JSON), thought signatures and unknown fields included."""
    reply: bytes | None = None
    """The user content that answers the turn (JSON); None while its round is open."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A gateway's right to go on with a run: later holders have a higher fence, and only theirs counts."""

    key: RunKey
    fence: int


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run as it stands."""

    key: RunKey
    workflow: str
    subject: str
    model: str
    state: RunState
    end: str | None
    """A `RunEnd` once it ended."""
    answer: str | None
    started_at: datetime
    ends_by: datetime
    finished_at: datetime | None
    rounds: int
    model_calls: int
    tokens: int
    last_event_id: int


@dataclass(frozen=True, kw_only=True)
class HeldRun:
    """A run that this gateway took over, with everything that is needed to go on."""

    hold: Hold
    workflow: str
    subject: str
    model: str
    prompt: str
    context: Mapping[str, Any]
    bounds: Bounds
    seconds_left: float
    """Of its wall clock, by the database's time."""
    model_calls: int
    tokens: int
    last_event_id: int
    turns: tuple[Turn, ...] = ()
    open_events: tuple[StoredEvent, ...] = ()
    """Events since the last turn was stored: what was already told of the open round."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a run."""

    state: RunState
    end: RunEnd
    answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one transaction adds to a run: events, and perhaps a turn, the reply to a turn, or the end."""

    events: Sequence[Event] = ()
    turn: Turn | None = None
    tokens: int = 0
    reply: tuple[int, bytes] | None = None
    """The number of the turn that it answers, and the reply."""
    ended: Ended | None = None


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What the calls of a round still wait for."""

    pending_approvals: frozenset[str]
    """Approvals that nobody has answered and that have not expired."""
    states: Mapping[UUID, CallState]
    """Admitted calls by decision id."""
    resolvable: frozenset[UUID]
    """Calls in doubt that a resolver will look at by itself."""


@dataclass(frozen=True, kw_only=True)
class PlainRun:
    """A run as its calls made it: every run id that an agent used or cancelled has one."""

    key: RunKey
    workflow: str | None
    subject: str | None
    calls: int
    failures: int
    cancelled_at: datetime | None


class HoldLost(Exception):
    """The run is no longer this gateway's: it was cancelled, has ended, or another gateway took it over."""


class RunKeyReused(Exception):
    """An Idempotency-Key that started another run than the one that is asked for now."""


class RunStore(Protocol):
    """What the loop needs of the ledger. Every method may raise LedgerUnavailable."""

    async def start(self, run: NewRun, first: Event, *, lease_s: float) -> HeldRun | RunKey:
        """Store a run with its first event and hold it; or the run that its start key already started. Raises RunKeyReused."""
        ...

    async def take_due(self, tenant: str, *, lease_s: float, limit: int) -> list[HeldRun]:
        """Take over running runs whose lease is over, each under a new fence."""
        ...

    async def reopen(self, key: RunKey, *, lease_s: float) -> HeldRun | None:
        """Take over a run whose lease is over, or that ended resumably; None where it is held, or ended for good."""
        ...

    async def renew(self, hold: Hold, *, lease_s: float) -> None:
        """Hold on to a run. Raises HoldLost."""
        ...

    async def release(self, hold: Hold) -> None:
        """Give a run back, so that another gateway takes it over at once."""
        ...

    async def count_model_call(self, hold: Hold) -> int:
        """Count a request to the model before it is sent; answers how many there were. Raises HoldLost."""
        ...

    async def write(self, hold: Hold, step: Step, *, last_event_id: int) -> int:
        """Commit a step; answers the last event id. Safe to repeat with the same arguments. Raises HoldLost."""
        ...

    async def kept_approvals(self, key: RunKey, transport_keys: Sequence[bytes]) -> Mapping[bytes, str]:
        """The approval that was asked for each call, by its transport key (SHA-256), where there is one."""
        ...

    async def read_waits(self, tenant: str, approvals: Sequence[str], decisions: Sequence[UUID]) -> Waits:
        """How approvals and calls stand."""
        ...

    async def cancel(self, key: RunKey, record: RecordDraft, last: Event) -> bool:
        """Cancel a run of whatever kind, with its record: no further call of it is admitted. False where it was already."""
        ...

    async def get(self, key: RunKey) -> RunRow | None:
        """A run whose loop the gateway owns."""
        ...

    async def get_plain(self, key: RunKey) -> PlainRun | None:
        """A run by its calls, whoever owns its loop."""
        ...

    async def find(
        self, tenant: str, agent: str, *, state: RunState | None, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[RunRow]:
        """An agent's runs, newest first; `before` is start and id of the last one of the page before."""
        ...

    async def events(self, key: RunKey, *, after: int, limit: int) -> tuple[RunState, Sequence[StoredEvent]] | None:
        """The state of a run, and its events after an id, in one snapshot; None where there is no such run."""
        ...


EventType = Literal[
    "run.started",
    "run.resumed",
    "model.called",
    "model.retried",
    "model.steered",
    "call.decided",
    "call.finished",
    "approval.required",
    "client.required",
    "answer",
    "run.finished",
    "run.failed",
]
