# The referee's harmless effect, and its durable journal.

from agentbarrier import ActionRequest, AuditEvent, AuditReceipt, ReconciliationEvidence

class _Journal:
    def record_receipt(
        self, *, run_id: str, event: AuditEvent, action_id: str | None = None, action_digest: str | None = None, detail: str | None = None
    ) -> AuditReceipt: ...
    def receipts(self, *, run_id: str | None = None) -> tuple[AuditReceipt, ...]: ...

class EffectProbe:
    journal: _Journal
    async def __call__(self, action: ActionRequest) -> str: ...
    async def reconcile(self, action: ActionRequest) -> ReconciliationEvidence: ...
