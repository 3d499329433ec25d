"""Reads that come together are made together: one statement answers everybody who asked while the last ones were under way."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from gateway.domain.decision import LedgerUnavailable, Overloaded
from gateway.ledger.database import StatementFailed

MAX_TOGETHER = 64
"""Questions of one statement."""
MAX_PARALLEL = 2
"""Statements of one tenant at once."""
MAX_WAITING = 2_000
"""Questions that may wait; beyond it they are refused at once."""

Q = TypeVar("Q")
A = TypeVar("A")


class _Asked(NamedTuple):
    question: Any
    answer: "asyncio.Future[Any]"


class Gatherer(Generic[Q, A]):
    """Asks `read` (tenant, questions) -> answers, in the questions' order."""

    def __init__(self, read: Callable[[str, Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._read = read
        self._waiting: dict[str, deque[_Asked]] = {}
        self._reading: dict[str, int] = {}
        self._reads: set[asyncio.Task[None]] = set()

    async def ask(self, tenant: str, question: Q) -> A:
        """The answer from one snapshot that is no older than the question. Raises LedgerUnavailable, Overloaded."""
        queue = self._waiting.setdefault(tenant, deque())
        if len(queue) >= MAX_WAITING:
            raise Overloaded(f"{len(queue)} reads are waiting")
        asked = _Asked(question, asyncio.get_running_loop().create_future())
        queue.append(asked)
        self._start(tenant)
        return await asked.answer

    async def close(self) -> None:
        """Wait for the reads that are under way."""
        while self._reads:
            await asyncio.wait(set(self._reads))

    def _start(self, tenant: str) -> None:
        queue = self._waiting[tenant]
        while queue and self._reading.get(tenant, 0) < MAX_PARALLEL:
            together = [queue.popleft() for _ in range(min(len(queue), MAX_TOGETHER))]
            self._reading[tenant] = self._reading.get(tenant, 0) + 1
            task = asyncio.create_task(self._answer_and_go_on(tenant, together))
            self._reads.add(task)
            task.add_done_callback(self._reads.discard)

    async def _answer_and_go_on(self, tenant: str, together: Sequence[_Asked]) -> None:
        try:
            await self._answer(tenant, together)
        finally:
            self._reading[tenant] -= 1
            self._start(tenant)

    async def _answer(self, tenant: str, together: Sequence[_Asked]) -> None:
        try:
            answers = await self._read(tenant, [asked.question for asked in together])
        except StatementFailed as error:
            if len(together) == 1:
                _fail(together, error)
                return
            for asked in together:  # one that cannot be read must not fail its neighbours
                await self._answer(tenant, [asked])
        except Exception as error:  # noqa: BLE001 - it reaches everybody who asked
            _fail(together, error)
        else:
            for asked, answer in zip(together, answers, strict=True):
                if not asked.answer.done():  # whoever asked may be gone
                    asked.answer.set_result(answer)


def _fail(together: Sequence[_Asked], error: Exception) -> None:
    for asked in together:
        if not asked.answer.done():
            asked.answer.set_exception(LedgerUnavailable(error.detail) if isinstance(error, LedgerUnavailable) else error)
