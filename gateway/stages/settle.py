"""The outcome is committed: the call's end, its budgets and its record, in one transaction."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from gateway.domain.answers import allowed, outcome_result, unended_result
from gateway.domain.call import Normalized, Settled
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.drafts import outcome_draft
from gateway.domain.outcome import CallState
from gateway.domain.ports import Ledger

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Settle:
    """Books what happened. It has happened, so this is tried until the ledger takes it or the process ends."""

    name = "settle"

    def __init__(self, ledger: Ledger, new_id: Callable[[], UUID], report: Callable[[Exception], None]) -> None:
        self._ledger = ledger
        self._new_id = new_id
        self._report = report

    async def __call__(self, call: Normalized) -> Settled:
        """Commit, again and again while the ledger is away; a second commit of the same settlement does nothing."""
        pause = FIRST_PAUSE_S
        record_id = self._new_id()
        while True:
            try:
                result = await self._book(call, record_id)
            except LedgerUnavailable as fault:
                self._report(fault)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            else:
                return Settled.after(call, answer=allowed(call, result))

    async def _book(self, call: Normalized, record_id: UUID) -> Mapping[str, Any]:
        """What the agent is told once everything is committed; what a client is to perform was committed with its admission."""
        if call.outcome.state is CallState.PENDING_CLIENT:
            return await self._read_end(call)
        result = outcome_result(call.bundle, call.outcome)
        is_booked = await self._ledger.settle(call, outcome_draft(call, record_id, result["status"]), result)
        return result if is_booked else await self._read_end(call)

    async def _read_end(self, call: Normalized) -> Mapping[str, Any]:
        """What the ledger tells of a call that it has handed out or that somebody else has ended: that counts, not what was seen here."""
        state, result = await self._ledger.look_again(call.caller.tenant, call.decision_id)
        return result or unended_result(call.bundle, state)
