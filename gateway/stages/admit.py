"""Everything that can block or refuse is taken; then one transaction commits the decision, and only the send lies ahead."""

from collections.abc import Callable

from gateway.domain.authority import has_permissions
from gateway.domain.call import LEASE_GRACE_S, Admitted, Decided, Dispatch, KnownCall, Replay
from gateway.domain.decision import Again, Refusal
from gateway.domain.drafts import decision_draft, identity_of
from gateway.domain.identity import downstream_key, judge_known
from gateway.domain.ports import Executor, Invocation, Ledger
from gateway.domain.reasons import Effect


class Admit:
    """Prepares the execution, then commits decision, claims, budgets and log position together."""

    name = "admit"

    def __init__(self, ledger: Ledger, executor: Executor, boot_time: Callable[[], float]) -> None:
        self._ledger = ledger
        self._executor = executor
        self._boot_time = boot_time

    async def __call__(self, call: Decided) -> Admitted | Refusal | Replay | Again:
        """Admit, or give everything back."""
        identity = identity_of(call)
        draft = decision_draft(
            call,
            effect=Effect.ALLOW,
            reason_code=call.decision.reason_code,
            stage="decide",
            refusal=None,
            engine=call.engine,
            identity=identity,
        )
        if call.is_dry_run:
            found = await self._ledger.admit(call, draft)
            return _stopped(call, found) if found else Admitted.after(call, dispatch=Dispatch(), send_before=0.0)
        dispatch = await self._executor.prepare(_invocation(call))
        if isinstance(dispatch, Refusal):
            return dispatch
        # Counted from before the lease begins, on a clock that runs on while the machine sleeps.
        send_before = self._boot_time() + LEASE_GRACE_S
        is_admitted = False
        try:
            found = await self._ledger.admit(call, draft)
            is_admitted = found is None
        finally:
            if not is_admitted:
                dispatch.release()
        return _stopped(call, found) if found else Admitted.after(call, dispatch=dispatch, send_before=send_before, identity=identity)


def _stopped(call: Decided, found: Refusal | KnownCall | Again) -> Refusal | Replay | Again:
    if isinstance(found, Refusal | Again):
        return found
    refusal = judge_known(found, agent=call.principal.agent, subject=call.principal.subject, fingerprint=call.fingerprint)
    return refusal or Replay(known=found, is_permitted=has_permissions(call.tool, call.principal))


def _invocation(call: Decided) -> Invocation:
    return Invocation(
        decision_id=call.decision_id,
        tool=call.tool.declaration,
        args=call.args,
        context=call.context,
        tenant=call.caller.tenant,
        agent=call.principal.agent,
        subject=call.principal.subject,
        run_id=call.run_id,
        downstream_key=downstream_key(call.caller.tenant, call.decision_id),
    )
