"""The tool is called: a write once; a read again, while that may help and its time lasts."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from gateway.domain.call import Admitted, Executed
from gateway.domain.outcome import Delivery, Phase
from gateway.domain.retries import MAX_ATTEMPTS, RetryBudget, is_worth_retrying, pause_before


class Execute:
    """Sends what was prepared, and gives the slot back.

    Args:
        report: Told of faults of executors, which become lost deliveries.
        boot_time: Seconds since the machine started, asleep or not.
        clock: Seconds that never go backwards.
        chance: Gives numbers from 0 to 1, for the pauses between attempts.
        sleep: Waits for seconds.
    """

    name = "execute"

    def __init__(
        self,
        report: Callable[[Exception], None],
        boot_time: Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._report = report
        self._boot_time = boot_time
        self._clock = clock
        self._chance = chance
        self._sleep = sleep
        self._budgets: dict[tuple[str, str], RetryBudget] = {}

    async def __call__(self, call: Admitted) -> Executed:
        """Deliver; whatever goes wrong on the way is a delivery too."""
        try:
            delivered = await self._deliver(call)
        except Exception as error:  # noqa: BLE001 - a fault of an executor must not leave the call without an outcome
            self._report(error)
            delivered = Delivery(phase=Phase.LOST, problem="internal")
        finally:
            call.dispatch.release()
        return Executed.after(call, delivered=delivered)

    async def _deliver(self, call: Admitted) -> Delivery:
        if self._boot_time() >= call.send_before:
            # The process was held up: somebody else may already act on the end of this lease.
            return Delivery(phase=Phase.NOT_SENT, problem="lease")
        began = self._clock()
        budget = self._budgets.setdefault((call.caller.tenant, call.tool.name), RetryBudget())
        budget.count_call(began)
        delivered = await call.dispatch.send()
        for attempt in range(2, MAX_ATTEMPTS + 1):
            if not is_worth_retrying(call.tool, delivered):
                break
            pause = pause_before(attempt, delivered, self._chance())
            now = self._clock()
            if now + pause >= began + call.tool.declaration.timeout or not budget.take(now):
                break
            await self._sleep(pause)
            if not call.dispatch.may_repeat():
                break
            repeated = await call.dispatch.send()
            delivered = replace(repeated, attempts=attempt, duration_ms=(self._clock() - began) * 1000)
        return delivered
