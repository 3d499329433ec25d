"""Group commit: concurrent writes of one tenant share transactions.

Many connections that queue on one hot row are slow; one writer that takes what has gathered is fast. A batch holds the
writes of one tenant; settlements go before admissions, so that what has happened is booked before more is let in.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.decision import LedgerUnavailable, Overloaded

MAX_BATCH = 64
"""Writes that share one transaction."""
MAX_PARALLEL = 2
"""Batches of one tenant at once: one commits while the next is prepared; more only queue on the log head."""
MAX_WAITING = 2_000
"""Writes that may wait for their batch; beyond it they are refused at once."""


@dataclass(eq=False)
class Write:
    """One write that waits for its batch. `found` is set by the batch, `done` resolves when it is committed."""

    found: Any = None
    done: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    is_ending: bool = False
    """Whether it books something that has happened; such writes go first and are never shed."""


CommitBatch = Callable[[str, Sequence[Write]], Awaitable[Sequence[Write]]]
"""Commits a batch of one tenant in one transaction and sets `found` of each write; raises on any failure.

Answers the writes that must wait for another transaction, because they touch what an earlier one of the batch did.
"""


class Coalescer:
    """Gathers writes and commits them in batches."""

    def __init__(
        self, commit: CommitBatch, *, max_batch: int = MAX_BATCH, max_parallel: int = MAX_PARALLEL, max_waiting: int = MAX_WAITING
    ) -> None:
        self._commit = commit
        self._max_batch = max_batch
        self._max_parallel = max_parallel
        self._max_waiting = max_waiting
        self._endings: dict[str, deque[Write]] = {}
        self._others: dict[str, deque[Write]] = {}
        self._running: dict[str, int] = {}
        self._batches: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Writes that wait for their batch."""
        return sum(map(len, self._endings.values())) + sum(map(len, self._others.values()))

    async def submit(self, tenant: str, write: Write) -> Any:
        """What the batch found for `write`, once it is committed. Raises LedgerUnavailable, or Overloaded at once.

        The wait may be cancelled; the write may not: once queued it is committed with its batch.
        """
        queue = (self._endings if write.is_ending else self._others).setdefault(tenant, deque())
        if not write.is_ending and len(queue) >= self._max_waiting:
            raise Overloaded(f"{len(queue)} writes are waiting")
        queue.append(write)
        self._start(tenant)
        return await write.done

    async def close(self) -> None:
        """Wait for the batches that are under way."""
        while self._batches:
            await asyncio.wait(set(self._batches))

    def _start(self, tenant: str) -> None:
        while self._running.get(tenant, 0) < self._max_parallel and (batch := self._take(tenant)):
            self._running[tenant] = self._running.get(tenant, 0) + 1
            task = asyncio.create_task(self._run(tenant, batch))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    def _take(self, tenant: str) -> list[Write]:
        batch: list[Write] = []
        for queues in (self._endings, self._others):
            queue = queues.get(tenant, ())
            while queue and len(batch) < self._max_batch:
                batch.append(queue.popleft())
        return batch

    async def _run(self, tenant: str, batch: list[Write]) -> None:
        try:
            await self._commit_or_split(tenant, batch)
        finally:
            self._running[tenant] -= 1
            self._start(tenant)

    async def _commit_or_split(self, tenant: str, batch: list[Write]) -> None:
        try:
            postponed = await self._commit(tenant, batch)
        except LedgerUnavailable as fault:
            for write in batch:
                _fail(write, LedgerUnavailable(fault.detail))
        except Exception as error:  # noqa: BLE001 - one bad write must not fail its neighbours, and reaches its own caller
            if len(batch) == 1:
                _fail(batch[0], error)
                return
            for write in batch:
                await self._commit_or_split(tenant, [write])
        else:
            for write in batch:
                if write not in postponed and not write.done.done():
                    write.done.set_result(write.found)
            for write in reversed(postponed):
                (self._endings if write.is_ending else self._others)[tenant].appendleft(write)


def _fail(write: Write, error: Exception) -> None:
    if not write.done.done():
        write.done.set_exception(error)
        write.done.exception()  # whoever waited may be gone
