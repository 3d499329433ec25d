"""Taking turns inside one process: calls that would change each other's facts are decided one after the other."""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.domain.decision import Overloaded

PATIENCE_S = 5.0


class Turns:
    """A lock a key, made when somebody needs it and forgotten when nobody does.

    The ledger's versions keep gateways apart; without turns, calls in one process would send each other back to decide
    again, where waiting a moment is enough.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._users: dict[Hashable, int] = {}

    @asynccontextmanager
    async def take(self, keys: Sequence[Hashable], *, patience_s: float = PATIENCE_S) -> AsyncGenerator[None]:
        """Hold the turn for all `keys`, taken in the order given (one order for everybody). Raises Overloaded."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(patience_s):
                    for key in keys:
                        await stack.enter_async_context(self._turn(key))
            except TimeoutError:
                raise Overloaded("too many calls change each other's facts") from None
            yield

    @asynccontextmanager
    async def _turn(self, key: Hashable) -> AsyncGenerator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
