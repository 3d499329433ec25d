"""The gateway's side of one worker process: calls go out in batches, answers come back in order, a runaway is killed."""

import asyncio
import os
import signal
import struct
import subprocess
from collections import deque
from collections.abc import Callable

from gateway.domain.decision import PolicyFault
from gateway.domain.reasons import ReasonCode
from gateway.policy import worker
from gateway.policy.errors import explain_error
from gateway.policy.launch import close_pipes, frame, start_worker

_HEAD = struct.Struct(">IB")
_BATCH_BYTES = 64 * 1024
_GRACE_S = 1.0
"""The worker's own timer counts CPU time and fires first; the gateway's counts seconds, for a worker that stands still."""


class Evaluation:
    """One frame that was, or will be, sent to a worker, and the future of its answer (kind, body)."""

    __slots__ = ("answer", "frame", "limit_s")

    def __init__(self, kind: bytes, body: bytes, limit_s: float) -> None:
        self.frame = frame(kind, body)
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self.limit_s = limit_s

    def fail(self, code: ReasonCode, detail: str) -> None:
        """Answer with a fault, unless the caller is gone."""
        if not self.answer.done():
            self.answer.set_exception(PolicyFault(code, detail))


class WorkerProcess:
    """A running worker. `on_death` is told once, when the worker has ended by itself; not when `end` did."""

    def __init__(self, process: subprocess.Popen[bytes], requests: int, answers: int, on_death: Callable[["WorkerProcess"], None]) -> None:
        self._process = process
        self._requests = requests
        self._answers = answers
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._incoming = bytearray()
        self._outgoing: deque[bytes] = deque()
        self._unsent = memoryview(b"")
        self._is_blocked = False
        self._head_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_open = True
        self._is_overdue = False
        self.unanswered: deque[Evaluation] = deque()
        os.set_blocking(requests, False)
        os.set_blocking(answers, False)
        self._loop.add_reader(answers, self._read)

    @classmethod
    def spawn(cls, memory_bytes: int, on_death: Callable[["WorkerProcess"], None]) -> "WorkerProcess":
        """Start a worker (it takes about a millisecond until its program begins); PolicyFault where the host cannot."""
        try:
            process, requests, answers = start_worker(memory_bytes)
        except OSError as error:
            raise PolicyFault(ReasonCode.POLICY_ENGINE_UNAVAILABLE, f"no worker could be started: {error.strerror}") from error
        return cls(process, requests, answers, on_death)

    def send(self, evaluation: Evaluation) -> None:
        """Queue one evaluation; everything queued in one turn of the loop leaves in one write."""
        if not self.unanswered:
            self._begin_head(evaluation)
        self.unanswered.append(evaluation)
        if not self._outgoing and not self._unsent:
            self._loop.call_soon(self._flush)
        self._outgoing.append(evaluation.frame)

    def kill(self) -> None:
        """End the process if it still runs; `on_death` is not told."""
        self._close()
        self._process.kill()

    async def end(self) -> int:
        """Kill and reap the process; its exit status (negative: the signal)."""
        self.kill()
        return await asyncio.to_thread(self._process.wait)

    async def explain_end(self) -> tuple[ReasonCode, str]:
        """Reap a worker that died; what the call that it was evaluating is told, and the detail for the record."""
        try:
            status = await asyncio.to_thread(self._process.wait, 1.0)
        except subprocess.TimeoutExpired:
            status = await self.end()
        if self._is_overdue or status == -signal.SIGPROF:
            return ReasonCode.POLICY_TIMEOUT, "the evaluation exceeded its time limit"
        if status in (-signal.SIGKILL, -signal.SIGTERM):
            return ReasonCode.POLICY_ENGINE_UNAVAILABLE, "the worker was ended from outside"
        if status < 0:
            return ReasonCode.POLICY_EVALUATION_ERROR, f"the evaluation ended its worker by {signal.Signals(-status).name}"
        return ReasonCode.POLICY_EVALUATION_ERROR, f"the evaluation ended its worker with status {status}"

    def _begin_head(self, evaluation: Evaluation) -> None:
        self._head_since = self._loop.time()
        due = self._head_since + evaluation.limit_s + _GRACE_S
        if self._timer is not None and self._timer.when() <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._check_head)

    def _check_head(self) -> None:
        # One timer a worker instead of one a call: it looks whether the oldest call is overdue, and when to look again.
        self._timer = None
        if not self.unanswered or not self.is_open:
            return
        due = self._head_since + self.unanswered[0].limit_s + _GRACE_S
        if due > self._loop.time():
            self._timer = self._loop.call_at(due, self._check_head)
            return
        self._is_overdue = True
        self._process.kill()  # The reader sees the pipe close.

    def _flush(self) -> None:
        if not self.is_open:
            return
        while self._unsent or self._outgoing:
            if not self._unsent:
                self._unsent = memoryview(self._next_batch())
            try:
                sent = os.write(self._requests, self._unsent)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # It died; what it answered before is still to be read, and then the reader sees the end.
            self._unsent = self._unsent[sent:]
            if self._unsent:  # The pipe is full.
                if not self._is_blocked:
                    self._is_blocked = True
                    self._loop.add_writer(self._requests, self._flush)
                return
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._requests)

    def _next_batch(self) -> bytes:
        # Bounded, so that what does not fit into the pipe is not copied again and again.
        frames, size = [self._outgoing.popleft()], 0
        while self._outgoing and (size := size + len(frames[-1])) < _BATCH_BYTES:
            frames.append(self._outgoing.popleft())
        return b"".join(frames)

    def _read(self) -> None:
        try:
            data = os.read(self._answers, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            self._on_death(self)
            return
        self._incoming += data
        self._take_answers()

    def _take_answers(self) -> None:
        start, end = 0, len(self._incoming)
        while end - start >= _HEAD.size:
            length, mark = _HEAD.unpack_from(self._incoming, start)
            if end - start < length + 4:
                break
            body = bytes(self._incoming[start + _HEAD.size : start + 4 + length])
            start += length + 4
            evaluation = self.unanswered.popleft()
            if not evaluation.answer.done():  # A caller that left still has its place in the order.
                evaluation.answer.set_result((mark, body))
        del self._incoming[:start]
        if start and self.unanswered:
            self._begin_head(self.unanswered[0])

    def _close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._answers)
        self._loop.remove_writer(self._requests)
        close_pipes(self._process)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def load(process: WorkerProcess, body: bytes) -> None:
    """Load a revision into a worker; PolicyFault where it does not load."""
    evaluation = Evaluation(worker.LOAD, body, worker.LOAD_S)
    process.send(evaluation)
    mark, answer = await evaluation.answer
    if mark != worker.RESULT[0]:
        raise PolicyFault(ReasonCode.POLICY_EVALUATION_ERROR, f"the policies do not load: {explain_error(answer.decode(errors='replace'))}")
