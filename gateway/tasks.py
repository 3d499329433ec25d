"""Work that belongs to the gateway and not to the HTTP handler that asked for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    """Running work, held until it ends: a client that leaves changes nothing."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` to its end, whoever waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, timeout_s: float) -> int:
        """Wait for everything to end, at most `timeout_s` seconds; answers how many were cut off."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._tasks and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left)  # what ends may have started more
        late = set(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return len(late)
