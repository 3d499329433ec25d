"""The embedded engine: regorus in supervised worker processes, behind the port `PolicyEngine`."""

import asyncio
from collections.abc import Set as AbstractSet
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
    """Decides in worker processes. Each revision has workers of its own; those that are let go answer what they were asked."""

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
        self._pools: dict[str, WorkerPool] = {}
        self._activation = asyncio.Lock()
        self._retiring: dict[WorkerPool, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """Engine and version, as records name it."""
        return self._name

    async def is_ready(self) -> bool:
        """Whether some revision can be decided; its canary decision was made when it was activated."""
        return bool(self._pools)

    @property
    def deaths(self) -> int:
        """Workers of the loaded revisions that died since they were loaded; each cost one call its decision."""
        return sum(pool.deaths for pool in self._pools.values())

    async def activate(self, policies: PolicySet) -> None:
        """Load a revision in fresh workers and prove it by a canary decision; PolicyFault leaves the others as they are."""
        async with self._activation:
            if policies.revision in self._pools:
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
            self._pools[policies.revision] = fresh

    async def retain(self, revisions: AbstractSet[str]) -> None:
        """Let go of every revision but these; what its workers were asked they still answer."""
        async with self._activation:
            for revision in self._pools.keys() - revisions:
                self._retire(self._pools.pop(revision))

    async def decide(self, revision: str, document: bytes) -> Any:
        """The raw answer of ``data.gateway.decision`` on `document`; see the port for the faults."""
        if not self._pools:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "no revision is active")
        pool = self._pools.get(revision)
        if pool is None:
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
            pools, self._pools = self._pools, {}
            for open_pool in (*retiring, *pools.values()):
                await open_pool.close()
            await asyncio.gather(*retiring.values())

    def _retire(self, pool: WorkerPool) -> None:
        self._retiring[pool] = task = asyncio.get_running_loop().create_task(_drain_and_close(pool))
        task.add_done_callback(lambda _: self._retiring.pop(pool))


async def _drain_and_close(pool: WorkerPool) -> None:
    await pool.drain()
    await pool.close()
