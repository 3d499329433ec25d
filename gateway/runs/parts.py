"""What the loop of a run works with, passed in by the composition root."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gateway.domain.in_force import InForce
from gateway.domain.ports import Ledger
from gateway.domain.runs import RunKey, RunStore
from gateway.enforcer import Enforcer
from gateway.runs.model import Model
from gateway.tasks import TaskSet

POLL_S = (0.3, 0.6)
"""Between two looks at what a run waits for, seconds; spread so that gateways do not look in step."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The collaborators of all runs of a gateway."""

    store: RunStore
    ledger: Ledger
    enforcer: Enforcer
    model: Model | None
    """None where no model is configured: runs can then be looked at and cancelled, not driven."""
    in_force: Callable[[str], InForce | None]
    tasks: TaskSet
    draining: asyncio.Event
    """Set once the gateway stops: runs are handed over."""
    wake: Callable[[RunKey], None]
    """Called whenever a run has new events."""
    report: Callable[[Exception], None]
    new_id: Callable[[], UUID]
    now: Callable[[], datetime]
    lease_s: float
