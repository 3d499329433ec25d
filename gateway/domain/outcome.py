"""What came of an execution: the delivery as an executor saw it, and the outcome that is booked and told."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from gateway.domain.reasons import ReasonCode


class Phase(StrEnum):
    """How far a delivery got; the only thing that decides whether an effect is possible."""

    NOT_SENT = "not_sent"
    """Certainly nothing reached the tool: refused connection, DNS, TLS before the first byte."""
    ANSWERED = "answered"
    """The tool answered, whatever it said."""
    LOST = "lost"
    """Something may have reached the tool and no usable answer came back."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One delivery to a tool as its executor saw it; no judgement about what it means."""

    phase: Phase
    status: int | None = None
    """HTTP status of an answer; None for python tools."""
    value: Any = None
    """The answer as a JSON value, cleaned of what the ledger cannot store (`gateway.executors.answers`)."""
    unusable: Literal["invalid", "too_large"] | None = None
    """Set where an answer came but its body cannot be used."""
    is_rejected: bool = False
    """A python tool said that it did nothing because the input is wrong."""
    problem: str | None = None
    """Bounded code for the record: ``connect``, ``timeout``, ``reset``, ``exception`` …"""
    duration_ms: float = 0.0


class CallState(StrEnum):
    """States of a call in the ledger."""

    OPEN = "open"
    RUNNING = "running"
    PENDING_CLIENT = "pending_client"
    IN_DOUBT = "in_doubt"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is booked for an executed call: the state, the code that is told, and the data."""

    state: CallState
    reason_code: ReasonCode
    data: Any = None
    data_omitted: Literal["invalid", "too_large", "expired", "not_permitted"] | None = None
    delivery: Delivery
