"""Writing down a run: steps in order, under the run's fence, until the database takes them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.domain.decision import LedgerUnavailable
from gateway.domain.runs import Event, Hold, Step
from gateway.runs.parts import Parts

PAUSE_S = 0.5
"""Before the next try where the database was away."""

T = TypeVar("T")


class HandOver(Exception):
    """This gateway stops; the run goes on elsewhere."""


class Journal:
    """The only writer of one held run."""

    def __init__(self, parts: Parts, hold: Hold, last_event_id: int) -> None:
        self._parts = parts
        self._last_event_id = last_event_id
        self._told: list[Event] = []
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self.hold = hold

    def tell(self, event: Event) -> None:
        """Let an event be written soon, in the order told. Never blocks."""
        self._told.append(event)
        self._news.set()

    async def write(self, step: Step) -> None:
        """Commit a step together with all that was told before it. Raises HoldLost, HandOver.

        The wait may be cancelled; the step may not: nobody could say whether it was committed.
        """
        task = self._parts.tasks.start(self._write(step))
        task.add_done_callback(_retrieve)
        await asyncio.shield(task)

    async def _write(self, step: Step) -> None:
        async with self._turn:
            events, self._told = [*self._told, *step.events], []
            whole = Step(events=events, turn=step.turn, tokens=step.tokens, reply=step.reply, ended=step.ended)
            # Repeated with the same arguments, so that a commit whose answer was lost is not committed twice.
            self._last_event_id = await self.patiently(lambda: self._parts.store.write(self.hold, whole, last_event_id=self._last_event_id))
        self._parts.wake(self.hold.key)

    async def keep_writing(self) -> None:
        """Write what is told, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._told:
                await self.write(Step())

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` finds once the database is there. Raises HandOver where the gateway stops first."""
        while True:
            try:
                return await ask()
            except LedgerUnavailable as fault:
                if self._parts.draining.is_set():
                    raise HandOver from None
                self._parts.report(fault)
                await asyncio.sleep(PAUSE_S)


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Whoever waited for the step may be gone; its exception was for them."""
    if not task.cancelled():
        task.exception()
