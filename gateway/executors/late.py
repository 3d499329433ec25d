"""Listening on after a write's time is over: its answer still tells what happened."""

import asyncio
from collections.abc import Callable

from gateway.domain.outcome import Delivery, Phase

LATE_S = 5.0
"""How long after its timeout a write is listened to; its lease in the ledger lasts as long."""


class Listeners:
    """Writes whose time is over and whose one request is still open; at most `limit` at once, each for `seconds`."""

    def __init__(self, limit: int, seconds: float = LATE_S) -> None:
        self._limit = limit
        self._seconds = seconds
        self._listening: set[asyncio.Task[Delivery]] = set()
        self._closing: asyncio.Future[None] | None = None

    def listen(self, answer: asyncio.Future[Delivery], abandon: Callable[[], object]) -> asyncio.Task[Delivery] | None:
        """A task that gives the final delivery; or None where too many are listened to already.

        `abandon` is called where the answer did not come in time, and on closing.
        """
        closing = self._closing = self._closing or asyncio.get_running_loop().create_future()
        if len(self._listening) >= self._limit or closing.done():
            return None
        task = asyncio.create_task(self._listen(answer, abandon, closing))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return task

    async def close(self) -> None:
        """End all listening; what had no answer by now is lost."""
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        while self._listening:
            await asyncio.wait(self._listening)

    async def _listen(self, answer: asyncio.Future[Delivery], abandon: Callable[[], object], closing: asyncio.Future[None]) -> Delivery:
        try:
            await asyncio.wait({answer, closing}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answer.done():
                abandon()
        return read_result(answer) if answer.done() else lost("timeout")


def read_result(answer: asyncio.Future[Delivery]) -> Delivery:
    """The delivery of finished work that never raises; work that cancelled itself is lost."""
    return lost("exception") if answer.cancelled() else answer.result()


def lost(problem: str) -> Delivery:
    """A delivery of which nobody knows what came."""
    return Delivery(phase=Phase.LOST, problem=problem)
