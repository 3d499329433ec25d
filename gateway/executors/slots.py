"""A bounded number of executions at once, and the dispatch that holds one place among them."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.domain.call import Dispatch
from gateway.domain.outcome import Delivery
from gateway.executors.breaker import Permit


class Slots:
    """`count` places; who finds none free waits at most `wait` seconds. Waiters are served in order."""

    def __init__(self, count: int, wait: float) -> None:
        self._free = asyncio.BoundedSemaphore(count)
        self._wait = wait

    async def take(self) -> bool:
        """Take a place; False when none became free in time."""
        if not self._free.locked():
            return await self._free.acquire()  # at once
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
    """A prepared execution in its slot. What it sends may hold a credential, so it shows nothing of itself.

    Args:
        slots: Where a place was taken for it.
        send: Delivers within so many seconds; never raises (but for a cancelled task).
        timeout: Seconds for all sends together, from the first one on.
        is_read: Whether it may be sent more than once.
        clock: Seconds that never go backwards.
        permit: Its way through a breaker, where there is one.
    """

    def __init__(
        self,
        slots: Slots,
        send: Callable[[float], Awaitable[Delivery]],
        *,
        timeout: float,
        is_read: bool,
        clock: Callable[[], float],
        permit: Permit | None = None,
    ) -> None:
        self._slots = slots
        self._send = send
        self._timeout = timeout
        self._is_read = is_read
        self._clock = clock
        self._permit = permit
        self._send_until: float | None = None
        self._late: Awaitable[Delivery] | None = None
        self._is_released = False

    async def send(self) -> Delivery:
        """Deliver to the tool; never raises (but for a cancelled task). A write that was sent, or a second one, is a RuntimeError."""
        now = self._clock()
        if self._is_released or (self._send_until is not None and not self._is_read):
            raise RuntimeError("sent already, or given back")
        if self._send_until is None:
            self._send_until = now + self._timeout
        delivery = await self._send(max(self._send_until - now, 0.0))
        self._late = delivery.late
        if self._permit is not None:
            self._permit.record(delivery)
        return delivery

    def may_repeat(self) -> bool:
        """Reads may, while the breaker is closed."""
        return self._is_read and not self._is_released and (self._permit is None or self._permit.may_repeat())

    def release(self) -> None:
        """Give permit and slot back, the slot once nobody listens any more; ValueError the second time."""
        if self._is_released:
            raise ValueError("released already")
        self._is_released = True
        if self._permit is not None:
            self._permit.release()
        if isinstance(self._late, asyncio.Future):
            self._late.add_done_callback(lambda _: self._slots.give_back())
        else:
            self._slots.give_back()
