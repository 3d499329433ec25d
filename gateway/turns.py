"""Taking turns inside one process: calls that would change each other's facts are decided one after the other."""

import asyncio
from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Self

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

    def open(self, *, patience_s: float = PATIENCE_S) -> "Turn":
        """A turn without keys yet; it ends with its block."""
        return Turn(self._locks, self._users, patience_s)


class Turn:
    """The keys that one call holds."""

    def __init__(self, locks: dict[Hashable, asyncio.Lock], users: dict[Hashable, int], patience_s: float) -> None:
        self._locks = locks
        self._users = users
        self._patience_s = patience_s
        self._held: list[Hashable] = []

    async def take(self, keys: Sequence[Hashable]) -> None:
        """Hold all `keys` too, taken in the order given (one order for everybody). Raises Overloaded; the block gives all back."""
        try:
            async with asyncio.timeout(None) as patience:
                for key in keys:
                    if key in self._locks and patience.when() is None:
                        patience.reschedule(asyncio.get_running_loop().time() + self._patience_s)
                    await self._take(key)
        except TimeoutError:
            raise Overloaded("too many calls change each other's facts") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None) -> None:
        for key in reversed(self._held):
            self._locks[key].release()
            self._leave(key)
        self._held.clear()

    async def _take(self, key: Hashable) -> None:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            await lock.acquire()  # at once where it is free
        except BaseException:
            self._leave(key)
            raise
        self._held.append(key)

    def _leave(self, key: Hashable) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._locks[key]
