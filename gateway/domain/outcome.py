"""What came of an execution: the delivery as an executor saw it, and the outcome that is booked and told."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
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
    HANDED_OUT = "handed_out"
    """The agent's client is to perform it, and says later what came of it."""


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
    """From the first send to the answer, with all attempts and the pauses between them."""
    attempts: int = 1
    """How often it was sent; more than once only for reads."""
    retry_after_ms: int | None = None
    """When the tool asked to be called again (Retry-After), at most an hour."""
    late: "Awaitable[Delivery] | None" = field(default=None, compare=False, repr=False)
    """Set where a write's time is over and its executor still listens: gives the final delivery, LOST where none came. Never raises."""


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
    retry_after_ms: int | None = None
    """When the same call may be repeated, where a temporary result's tool said so."""
