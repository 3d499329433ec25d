"""Recovery in every gateway: leases that are over become doubts, and doubts are resolved as their tools allow.

The reaper never executes. The resolver acts by the tool's `replay` class, with the tool as of the revision that admitted
the call: `safe` and `keyed` are sent again under the same downstream key, `probe` asks, `never` waits for a person. A doubt
is taken over under a new fence, so that whatever an earlier holder still writes changes nothing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gateway.domain.answers import outcome_result, plain_result
from gateway.domain.call import LEASE_GRACE_S
from gateway.domain.catalogue import Bundle, Execute, Probe, Replay, ResultRules, Risk, Tool, ToolDeclaration
from gateway.domain.classify import classify
from gateway.domain.decision import GatewayFault, Refusal
from gateway.domain.identity import downstream_key
from gateway.domain.in_force import InForce
from gateway.domain.outcome import CallState, Delivery, Phase
from gateway.domain.ports import Approvals, Doubt, Executor, Invocation, RecoveryLedger
from gateway.domain.reasons import ReasonCode

EVERY_S = 1.0
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
RETENTION_MARGIN_S = 60.0
"""A downstream key is not used again this close to the end of its retention; clocks differ."""

LoadBundle = Callable[[str, str], Awaitable[Bundle | None]]
"""The bundle of a revision that was in force, by tenant and revision."""


class Recovery:
    """Reaps and resolves until it is cancelled."""

    def __init__(
        self,
        ledger: RecoveryLedger,
        executor: Executor,
        load_bundle: LoadBundle,
        tenants: Callable[[], Iterable[str]],
        catch_up: Callable[[str], Awaitable[InForce | None]],
        report: Callable[[Exception], None],
        *,
        approvals: Approvals,
    ) -> None:
        self._ledger = ledger
        self._approvals = approvals
        self._executor = executor
        self._load_bundle = load_bundle
        self._tenants = tenants
        self._catch_up = catch_up
        self._report = report

    async def run(self) -> None:
        """Look once a second, out of step with other gateways. A fault is reported and does not end it."""
        while True:
            await asyncio.sleep(EVERY_S * random.uniform(0.8, 1.2))  # noqa: S311 - a pause, not a secret
            for tenant in self._tenants():
                try:
                    await self.look(tenant)
                except Exception as fault:  # noqa: BLE001 - recovery goes on
                    self._report(fault)

    async def look(self, tenant: str) -> None:
        """Reap what is over, approvals too; resolve what is due."""
        await self._ledger.reap(tenant)
        await self._approvals.expire(tenant)
        doubts = await self._ledger.take_doubts(tenant, hold_s=LONGEST_PAUSE_S)
        await asyncio.gather(*(self._resolve(doubt) for doubt in doubts))

    async def _resolve(self, doubt: Doubt) -> None:
        try:
            bundle = await self._load_bundle(doubt.tenant, doubt.revision)
            tool = bundle.tools.get(doubt.tool) if bundle is not None else None
            if bundle is None or tool is None:
                await self._ledger.postpone(doubt, None)
            elif doubt.replay is Replay.PROBE and tool.declaration.probe is not None:
                await self._ask(doubt, tool, tool.declaration.probe)
            else:
                await self._send_again(doubt, bundle, tool)
        except GatewayFault as fault:
            # The doubt stays ours until its hold is over; then somebody looks again.
            self._report(fault)

    async def _send_again(self, doubt: Doubt, bundle: Bundle, tool: Tool) -> None:
        keyed = tool.declaration.keyed
        if doubt.replay is Replay.KEYED and (keyed is None or doubt.age_s > keyed.retention - RETENTION_MARGIN_S):
            await self._ledger.postpone(doubt, None)  # the service may have forgotten the key: only a person can tell
            return
        if not await self._is_in_service(doubt):
            await self._ledger.postpone(doubt, LONGEST_PAUSE_S)
            return
        delivered = await self._deliver(doubt, tool.declaration)
        outcome = classify(tool.declaration, tool.output, delivered)
        if outcome.state not in (CallState.SUCCEEDED, CallState.FAILED):
            # That this attempt did nothing says nothing about the first one.
            await self._ledger.postpone(doubt, _pause(doubt.attempts))
            return
        await self._ledger.resolve(
            doubt,
            state=outcome.state,
            result=outcome_result(bundle, outcome),
            spend="all" if outcome.state is CallState.SUCCEEDED else "calls",
            evidence={"method": f"sent again ({doubt.replay.value})"} | _seen(delivered),
        )

    async def _is_in_service(self, doubt: Doubt) -> bool:
        """Whether operators let such a call go out now, by the ledger."""
        in_force = await self._catch_up(doubt.tenant)
        return in_force is not None and in_force.controls.lets_pass(doubt.agent, doubt.tool)

    async def _ask(self, doubt: Doubt, tool: Tool, probe: Probe) -> None:
        question = tool.declaration.model_copy(
            update={"execute": Execute(http=probe.http), "risk": Risk.READ, "replay": Replay.SAFE, "keyed": None, "result": ResultRules()}
        )
        delivered = await self._deliver(doubt, question)
        evidence = {"method": "probe"} | _seen(delivered)
        if _is_in(probe.found.status, delivered):
            await self._ledger.resolve(
                doubt, state=CallState.SUCCEEDED, result=plain_result(ReasonCode.EXECUTION_SUCCEEDED), spend="all", evidence=evidence
            )
        elif not _is_in(probe.not_found.status, delivered):
            await self._ledger.postpone(doubt, _pause(doubt.attempts))
        elif (early := LEASE_GRACE_S + tool.declaration.timeout + probe.settle - doubt.age_s) > 0:
            # It may still be on its way: a "no" counts only once even a sender that was held up until the last moment of its
            # lease is so long ago that the service must have made up its mind.
            await self._ledger.postpone(doubt, early + 0.1)
        else:
            await self._ledger.resolve(
                doubt, state=CallState.OPEN, result=plain_result(ReasonCode.NO_EFFECT_PROVEN), spend="nothing", evidence=evidence
            )

    async def _deliver(self, doubt: Doubt, tool: ToolDeclaration) -> Delivery:
        dispatch = await self._executor.prepare(
            Invocation(
                decision_id=doubt.decision_id,
                tool=tool,
                args=doubt.args,
                context=doubt.context,
                tenant=doubt.tenant,
                agent=doubt.agent,
                subject=doubt.subject,
                run_id=doubt.run_id,
                downstream_key=downstream_key(doubt.tenant, doubt.decision_id),
            )
        )
        if isinstance(dispatch, Refusal):
            return Delivery(phase=Phase.NOT_SENT, problem=str(dispatch.reason_code).lower())
        try:
            return await dispatch.send()
        finally:
            dispatch.release()


def _pause(attempts: int) -> float:
    longest = min(FIRST_PAUSE_S * 2 ** min(attempts, 10), LONGEST_PAUSE_S)
    return random.uniform(FIRST_PAUSE_S, longest)  # noqa: S311 - a pause, not a secret


def _is_in(statuses: list[int], delivered: Delivery) -> bool:
    return delivered.phase is Phase.ANSWERED and delivered.status in statuses


def _seen(delivered: Delivery) -> dict[str, Any]:
    return {"phase": delivered.phase.value, "tool_status": delivered.status, "problem": delivered.problem}
