"""A bounded number of executions at once, and the dispatch that holds one place among them."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.domain.call import Dispatch
from gateway.domain.outcome import Delivery


class Slots:
    """`count` places; who finds none free waits at most `wait` seconds. Waiters are served in order."""

    def __init__(self, count: int, wait: float) -> None:
        self._free = asyncio.BoundedSemaphore(count)
        self._wait = wait

    async def take(self) -> bool:
        """Take a place; False when none became free in time."""
        try:
            async with asyncio.timeout(self._wait):
                await self._free.acquire()
        except TimeoutError:
            return False
        return True

    def give_back(self) -> None:
        """Free a place that was taken; ValueError where none was."""
        self._free.release()


class SlotDispatch(Dispatch):
    """A prepared execution in its slot. What it sends may hold a credential, so it shows nothing of itself."""

    def __init__(self, slots: Slots, send: Callable[[], Awaitable[Delivery]]) -> None:
        self._slots = slots
        self._send = send

    async def send(self) -> Delivery:
        """Deliver to the tool, once; never raises (but for a cancelled task)."""
        return await self._send()

    def release(self) -> None:
        """Give the slot back."""
        self._slots.give_back()
