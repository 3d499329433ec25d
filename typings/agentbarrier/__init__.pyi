# The part of agentbarrier that our adapter uses. It is installed in an environment of its own, never in ours.

from abc import ABC
from collections.abc import Mapping, Sequence
from enum import StrEnum

from agentbarrier.probe import EffectProbe

class Capability(StrEnum):
    APPROVAL = "approval"
    ARGUMENT_BINDING = "argument_binding"
    AUDIT_RECEIPTS = "audit_receipts"
    CANCELLATION = "cancellation"
    DELEGATION = "delegation"
    OUTCOME_AMBIGUITY = "outcome_ambiguity"
    OUTCOME_RECONCILIATION = "outcome_reconciliation"
    PARALLEL_BARRIER = "parallel_barrier"
    REJECTION = "rejection"
    REPLAY = "replay"
    TIMEOUT = "timeout"

class AuditEvent(StrEnum):
    RUN_STARTED = "run_started"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVED = "approved"
    REJECTED = "rejected"
    RUN_COMPLETED = "run_completed"
    RUN_CANCELLED = "run_cancelled"
    RUN_TIMED_OUT = "run_timed_out"
    RUN_UNKNOWN = "run_unknown"
    RUN_FAILED = "run_failed"
    RECONCILIATION_STARTED = "reconciliation_started"
    RECONCILIATION_COMMITTED = "reconciliation_committed"
    RECONCILIATION_NOT_COMMITTED = "reconciliation_not_committed"
    RECONCILIATION_CONFLICT = "reconciliation_conflict"
    RECONCILIATION_UNAVAILABLE = "reconciliation_unavailable"
    RECONCILIATION_TIMED_OUT = "reconciliation_timed_out"

class RunStatus(StrEnum):
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    UNKNOWN = "unknown"

class ReconciliationStatus(StrEnum):
    COMMITTED = "committed"
    NOT_COMMITTED = "not_committed"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"

class ActionRequest:
    action_id: str
    tool_name: str
    requires_approval: bool
    parent_action_id: str | None
    @property
    def arguments(self) -> Mapping[str, object]: ...
    def with_arguments(self, arguments: Mapping[str, object]) -> ActionRequest: ...

class AuditReceipt: ...

class RunOutcome:
    status: RunStatus
    detail: str | None
    def __init__(self, status: RunStatus, detail: str | None = None) -> None: ...

class ReconciliationEvidence:
    status: ReconciliationStatus
    detail: str | None
    def __init__(
        self,
        action_id: str,
        status: ReconciliationStatus,
        expected_action_digest: str,
        observed_action_digests: tuple[str, ...] = (),
        detail: str | None = None,
    ) -> None: ...

class RunHandle(ABC):
    async def wait_for_pending(self, timeout_seconds: float) -> tuple[ActionRequest, ...]: ...
    async def approve(self, action_id: str, replacement: ActionRequest | None = None) -> None: ...
    async def reject(self, action_id: str, reason: str | None = None) -> None: ...
    async def cancel(self) -> None: ...
    async def wait(self, timeout_seconds: float) -> RunOutcome: ...
    async def reconcile(self, action_id: str, timeout_seconds: float) -> ReconciliationEvidence: ...
    async def replay(self) -> RunHandle: ...
    async def audit_receipts(self) -> tuple[AuditReceipt, ...]: ...
    async def close(self) -> None: ...

class AgentAdapter(ABC):
    name: str
    capabilities: frozenset[Capability]
    async def begin(
        self, *, run_id: str, actions: Sequence[ActionRequest], effect: EffectProbe, timeout_seconds: float | None = None
    ) -> RunHandle: ...

def action_digest(action: ActionRequest) -> str: ...
