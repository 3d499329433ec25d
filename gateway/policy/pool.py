"""The workers of one revision: some that answer, one warm spare, and what happens when one of them dies."""

import asyncio
from collections import deque
from collections.abc import Coroutine

import orjson

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.policy_input import CANARY
from gateway.domain.reasons import ReasonCode
from gateway.policy import worker
from gateway.policy.errors import explain_error
from gateway.policy.process import Evaluation, WorkerProcess, load

_RESPAWN_PAUSE_S = (0.0, 0.1, 0.5, 2.0)
"""Pauses before the first, second … attempt to replace a worker; the last one for all later attempts."""
_PROOFS = 3


class WorkerPool:
    """`size` answering workers and one spare, all with the same revision loaded and proven by a canary decision."""

    def __init__(self, policies: PolicySet, *, size: int, evaluation_s: float, memory_bytes: int, queue_limit: int) -> None:
        self.revision = policies.revision
        self.deaths = 0
        """Workers that died while they belonged to the pool."""
        self._loading = orjson.dumps({"modules": dict(policies.modules), "data": dict(policies.data), "evaluation_s": evaluation_s})
        self._size = size
        self._evaluation_s = evaluation_s
        self._memory_bytes = memory_bytes
        self._queue_limit = queue_limit
        self._starting: set[WorkerProcess] = set()
        self._answering: list[WorkerProcess] = []
        self._spares: list[WorkerProcess] = []
        self._waiting: deque[Evaluation] = deque()
        """Evaluations without a worker, until one has been respawned."""
        self._burials: set[asyncio.Task[None]] = set()
        self._respawns: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def start(self) -> None:
        """Start all workers and prove them; PolicyFault where the revision does not load or decide. Close it then."""
        launched = await asyncio.gather(*(self._launch() for _ in range(self._size + 1)), return_exceptions=True)
        for result in launched:
            if isinstance(result, BaseException):
                raise result
            self._enlist(result)

    async def decide(self, document: bytes) -> bytes:
        """Evaluate one document; the answer's JSON, unchecked."""
        if self._is_closed:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "the policy engine is closed")
        if len(self._waiting) + sum(len(process.unanswered) for process in self._answering) >= self._queue_limit:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "too many evaluations are waiting")
        evaluation = Evaluation(worker.DECIDE, document, self._evaluation_s)
        self._dispatch(evaluation)
        return read_answer_frame(*await evaluation.answer)

    async def drain(self) -> None:
        """Return when everything that is unanswered now has been answered."""
        if unanswered := self._unanswered():
            await asyncio.wait([evaluation.answer for evaluation in unanswered])

    async def close(self) -> None:
        """End every worker; what is unanswered fails with POLICY_ENGINE_UNAVAILABLE. May be called again."""
        self._is_closed = True
        processes = [*self._starting, *self._answering, *self._spares]
        for process in processes:
            process.kill()  # At once: whoever closes may be cancelled while it waits below.
        for evaluation in self._unanswered():
            evaluation.fail(ReasonCode.POLICY_ENGINE_UNAVAILABLE, "the policy engine is closed")
        for task in self._respawns:
            task.cancel()
        await asyncio.gather(*self._respawns, *self._burials, return_exceptions=True)
        await asyncio.gather(*(process.end() for process in processes))

    def _unanswered(self) -> list[Evaluation]:
        return [*self._waiting, *(evaluation for process in self._answering for evaluation in process.unanswered)]

    async def _launch(self) -> WorkerProcess:
        process = WorkerProcess.spawn(self._memory_bytes, self._replace)
        self._starting.add(process)
        try:
            await load(process, self._loading)
            await prove(process, self._evaluation_s)
        except BaseException:
            self._starting.discard(process)
            await process.end()
            raise
        return process

    def _enlist(self, process: WorkerProcess) -> None:
        self._starting.discard(process)
        if not process.is_open:  # It died between its canary and now.
            self._begin(self._respawn(), self._respawns)
        elif len(self._answering) < self._size:
            self._answering.append(process)
            while self._waiting:
                process.send(self._waiting.popleft())
        else:
            self._spares.append(process)

    def _dispatch(self, evaluation: Evaluation) -> None:
        if self._answering:
            min(self._answering, key=lambda process: len(process.unanswered)).send(evaluation)
        else:
            self._waiting.append(evaluation)

    def _replace(self, dead: WorkerProcess) -> None:
        """Answers come in order, so the oldest unanswered call is the one that killed the worker.

        The others never began, so they move on as often as it takes; whoever waits for one bounds that by a deadline.
        """
        culprit, *others = dead.unanswered or (None,)
        dead.unanswered.clear()
        self._begin(self._bury(dead, culprit), self._burials)
        if dead in self._starting:
            return  # Whoever started it is told by the failed load or canary.
        self.deaths += 1
        if dead in self._answering:
            self._answering.remove(dead)
            if self._spares:
                self._enlist(self._spares.pop())
        else:
            self._spares.remove(dead)
        self._begin(self._respawn(), self._respawns)
        for evaluation in others:
            if not evaluation.answer.done():  # unless its caller is gone
                self._dispatch(evaluation)

    async def _bury(self, dead: WorkerProcess, culprit: Evaluation | None) -> None:
        code, detail = await dead.explain_end()
        if culprit is not None:
            culprit.fail(code, detail)

    async def _respawn(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(_RESPAWN_PAUSE_S[min(attempt, len(_RESPAWN_PAUSE_S) - 1)])
            attempt += 1
            try:
                process = await self._launch()
            except PolicyFault:
                continue
            self._enlist(process)
            return

    def _begin(self, work: Coroutine[object, object, None], tasks: set[asyncio.Task[None]]) -> None:
        if self._is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def prove(process: WorkerProcess, limit_s: float) -> None:
    """A canary decision within a call's limit, best of three: a busy machine is no fault of the policies. PolicyFault otherwise."""
    clock = asyncio.get_running_loop().time
    for _ in range(_PROOFS):
        canary = Evaluation(worker.PROVE, CANARY, worker.PROVE_S)
        began = clock()
        process.send(canary)
        read_answer_frame(*await canary.answer)
        if clock() - began <= limit_s:
            return
    raise PolicyFault(ReasonCode.POLICY_TIMEOUT, f"the evaluation exceeded its limit of {limit_s * 1000:.0f} ms")


def read_answer_frame(mark: int, body: bytes) -> bytes:
    """The JSON of a worker's answer; PolicyFault for an error or an undefined rule."""
    if mark == worker.RESULT[0]:
        return body
    if mark == worker.UNDEFINED[0]:
        raise PolicyFault(ReasonCode.POLICY_UNDEFINED, f"{worker.ENTRY_POINT} is undefined")
    raise PolicyFault(ReasonCode.POLICY_EVALUATION_ERROR, explain_error(body.decode(errors="replace")))
