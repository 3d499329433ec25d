"""The embedded engine: regorus in supervised worker processes, behind the port `PolicyEngine`."""

import asyncio
from importlib.metadata import version
from typing import Any

import orjson

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.reasons import ReasonCode
from gateway.policy.launch import MEMORY_BYTES
from gateway.policy.pool import WorkerPool

EVALUATION_S = 0.25
"""Seconds that one evaluation may take."""
PATIENCE_S = 2.0
"""Seconds that one call may wait in all, its turn in the queue and the replacement of dead workers included."""
QUEUE_LIMIT = 1_000
"""Unanswered evaluations, beyond which calls are refused at once."""


class EmbeddedEngine:
    """Decides in worker processes. Each revision has workers of its own; those of an old one answer what they were asked."""

    def __init__(
        self,
        *,
        workers: int = 1,
        evaluation_s: float = EVALUATION_S,
        patience_s: float = PATIENCE_S,
        memory_bytes: int = MEMORY_BYTES,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self._workers = workers
        self._evaluation_s = evaluation_s
        self._patience_s = patience_s
        self._memory_bytes = memory_bytes
        self._queue_limit = queue_limit
        self._name = f"embedded regorus {version('gordon-to-regorus')}"
        self._pool: WorkerPool | None = None
        self._activation = asyncio.Lock()
        self._retiring: dict[WorkerPool, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """Engine and version, as records name it."""
        return self._name

    @property
    def is_ready(self) -> bool:
        """Whether a revision is active."""
        return self._pool is not None

    @property
    def deaths(self) -> int:
        """Workers of the active revision that died since its activation; each cost one call its decision."""
        return self._pool.deaths if self._pool else 0

    async def activate(self, policies: PolicySet) -> None:
        """Load a revision in fresh workers, prove it by a canary decision, then switch; PolicyFault leaves the old one active."""
        async with self._activation:
            if self._pool is not None and self._pool.revision == policies.revision:
                return
            fresh = WorkerPool(
                policies,
                size=self._workers,
                evaluation_s=self._evaluation_s,
                memory_bytes=self._memory_bytes,
                queue_limit=self._queue_limit,
            )
            try:
                await fresh.start()
            except BaseException:
                await fresh.close()
                raise
            old, self._pool = self._pool, fresh
            if old is not None:
                self._retire(old)

    async def decide(self, revision: str, document: bytes) -> Any:
        """The raw answer of ``data.gateway.decision`` on `document`; see the port for the faults."""
        pool = self._pool
        if pool is None:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "no revision is active")
        if pool.revision != revision:
            raise PolicyFault(ReasonCode.POLICY_STALE, "another revision is active")
        try:
            async with asyncio.timeout(self._patience_s):
                answer = await pool.decide(document)
        except TimeoutError:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "no worker was free in time") from None
        return orjson.loads(answer)

    async def close(self) -> None:
        """End every worker, those of earlier revisions included."""
        async with self._activation:
            retiring = dict(self._retiring)
            pool, self._pool = self._pool, None
            for open_pool in filter(None, (*retiring, pool)):
                await open_pool.close()
            await asyncio.gather(*retiring.values())

    def _retire(self, pool: WorkerPool) -> None:
        self._retiring[pool] = task = asyncio.get_running_loop().create_task(_drain_and_close(pool))
        task.add_done_callback(lambda _: self._retiring.pop(pool))


async def _drain_and_close(pool: WorkerPool) -> None:
    await pool.drain()
    await pool.close()
