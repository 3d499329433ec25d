"""Tools that are python functions: ``execute: {python: module:function}``."""

import asyncio
import contextlib
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import Risk, ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.outcome import Delivery, Phase
from gateway.domain.ports import Invocation
from gateway.domain.reasons import ReasonCode
from gateway.executors.answers import Cleaned, clean_value
from gateway.executors.functions import Function, Functions
from gateway.executors.late import LATE_S, Listeners, read_result
from gateway.executors.slots import SlotDispatch, Slots
from gateway.tool import CallContext, NotSent, Rejected

_log = structlog.stdlib.get_logger(__name__)


class PythonExecutor:
    """Runs each call in a task (async functions) or in a thread of its own (plain ones).

    A thread cannot be stopped. One whose call timed out is left to itself; as each call has its own, no pool runs dry,
    and `max_stuck` bounds how many are left behind before further calls are refused. A write whose time is over is listened
    to for a while first, in its slot; at most half of the slots listen.

    Args:
        modules: The modules that bundles may name; imported here.
        max_in_flight: Calls at once, not counting those left behind.
        max_stuck: Calls left behind after their timeout that still run.
        max_result_bytes: The largest result, as JSON text.
        slot_wait: How long a call may wait for a free slot, in seconds.
        late_s: How long a write is listened to after its timeout, in seconds.
        clock: Seconds that never go backwards.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        max_in_flight: int = 64,
        max_stuck: int = 128,
        max_result_bytes: int = 256 * 1024,
        slot_wait: float = 0.25,
        late_s: float = LATE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._functions = Functions(modules)
        self._slots = Slots(max_in_flight, slot_wait)
        self._stuck = _Stuck(max_stuck)
        self._listeners = Listeners(max_in_flight // 2, late_s)
        self._clock = clock
        self._max_result_bytes = max_result_bytes

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:  # noqa: ARG002 (modules serve all tenants)
        """Why the tool's function cannot be called here."""
        found = self._functions.find(tool.execute.python or "")
        return found if isinstance(found, str) else None

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:
        """Find the function and take a slot."""
        found = self._functions.find(invocation.tool.execute.python or "")
        if isinstance(found, str):
            return Refusal(reason_code=ReasonCode.TOOL_DISABLED, detail=found)
        if self._stuck.is_full():
            return Refusal(reason_code=ReasonCode.CONCURRENCY_LIMITED, detail="too many python tools still run past their timeout")
        if not await self._slots.take():
            return Refusal(reason_code=ReasonCode.OVERLOADED, detail="no free slot for python tools")
        is_read = invocation.tool.risk is Risk.READ

        async def send(seconds: float) -> Delivery:
            listeners = None if is_read else self._listeners
            call = _PythonCall(found, invocation, self._stuck, listeners, self._max_result_bytes, self._clock)
            return await call.run(seconds)

        return SlotDispatch(self._slots, send, timeout=invocation.tool.timeout, is_read=is_read, clock=self._clock)

    async def close(self) -> None:
        """End all listening and cancel what is left of async tools. Threads are daemons; they end with the process."""
        await self._listeners.close()
        self._stuck.cancel_all()


class _Stuck:
    """Work that outlived its call."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left_behind: set[threading.Thread | asyncio.Task[Delivery]] = set()

    def add(self, work: threading.Thread | asyncio.Task[Delivery]) -> None:
        self._left_behind.add(work)

    def is_full(self) -> bool:
        self._left_behind = {work for work in self._left_behind if not _is_over(work)}
        return len(self._left_behind) >= self._limit

    def cancel_all(self) -> None:
        for work in self._left_behind:
            if isinstance(work, asyncio.Task):
                work.cancel()


def _is_over(work: threading.Thread | asyncio.Task[Delivery]) -> bool:
    return work.done() if isinstance(work, asyncio.Task) else not work.is_alive()


@dataclass(frozen=True, kw_only=True)
class _Work:
    """A function at work."""

    answer: asyncio.Future[Delivery]
    abandon: Callable[[], None]
    """Stop waiting for it, and stop it where that is possible."""


class _PythonCall:
    """One call of one function."""

    def __init__(
        self,
        function: Function,
        invocation: Invocation,
        stuck: _Stuck,
        listeners: Listeners | None,
        max_result_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._function = function
        self._invocation = invocation
        self._stuck = stuck
        self._listeners = listeners
        self._max_result_bytes = max_result_bytes
        self._clock = clock
        self._started = clock()

    async def run(self, seconds: float) -> Delivery:
        try:
            work = self._start_task() if inspect.iscoroutinefunction(self._function) else self._start_thread()
        except RuntimeError:
            return self._delivery(phase=Phase.NOT_SENT, problem="no_thread")
        try:
            await asyncio.wait({work.answer}, timeout=seconds)
        except asyncio.CancelledError:
            if not work.answer.done():
                work.abandon()
            raise
        if work.answer.done():
            return read_result(work.answer)
        late = self._listeners.listen(work.answer, work.abandon) if self._listeners is not None else None
        if late is None:
            work.abandon()
        return self._delivery(phase=Phase.LOST, problem="timeout", late=late)

    def _start_task(self) -> _Work:
        task = asyncio.create_task(self._call_async())

        def abandon() -> None:
            # Not awaited: a tool may refuse to be cancelled, and the call's time is over.
            task.cancel()
            self._stuck.add(task)

        return _Work(answer=task, abandon=abandon)

    def _start_thread(self) -> _Work:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Delivery] = loop.create_future()

        def work() -> None:
            delivery = self._call()
            with contextlib.suppress(RuntimeError):  # the gateway has stopped; nobody waits any more
                loop.call_soon_threadsafe(_settle, answered, delivery)

        thread = threading.Thread(target=work, name=f"tool-{self._invocation.tool.name}", daemon=True)
        thread.start()
        return _Work(answer=answered, abandon=lambda: self._stuck.add(thread))

    def _call(self) -> Delivery:
        try:
            value = self._function(*self._arguments())
        except BaseException as error:  # noqa: BLE001 (even sys.exit() in a tool is only this call's end)
            return self._delivery_of_error(error)
        return self._delivery_of_value(value)

    async def _call_async(self) -> Delivery:
        try:
            value = await self._function(*self._arguments())
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the same)
            return self._delivery_of_error(error)
        return self._delivery_of_value(value)

    def _arguments(self) -> tuple[dict[str, Any], CallContext]:
        call = self._invocation
        # A copy of its own, since a tool may change what it gets.
        return orjson.loads(orjson.dumps(call.args, default=dict)), CallContext(
            tenant=call.tenant,
            agent=call.agent,
            subject=call.subject,
            run_id=call.run_id,
            decision_id=call.decision_id,
            downstream_key=call.downstream_key,
        )

    def _delivery_of_value(self, value: object) -> Delivery:
        if inspect.iscoroutine(value):
            value.close()  # a plain function that forgot to await
        try:
            cleaned = clean_value(value, self._max_result_bytes)
        except Exception:  # noqa: BLE001 (the tool has done its work; a strange object must not turn that into a failure)
            cleaned = Cleaned(unusable="invalid")
        return self._delivery(phase=Phase.ANSWERED, value=cleaned.value, unusable=cleaned.unusable)

    def _delivery_of_error(self, error: BaseException) -> Delivery:
        if isinstance(error, Rejected):
            return self._delivery(phase=Phase.ANSWERED, is_rejected=True)
        if isinstance(error, NotSent):
            return self._delivery(phase=Phase.NOT_SENT, problem="not_sent")
        # Its text may hold anything, so only its kind and place are logged.
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].name}:{frames[-1].lineno}" if frames else None
        call = self._invocation
        _log.warning("tool_raised", tool=call.tool.name, decision_id=str(call.decision_id), error=type(error).__name__, place=place)
        return self._delivery(phase=Phase.LOST, problem="exception")

    def _delivery(self, **facts: Any) -> Delivery:
        return Delivery(**facts, duration_ms=(self._clock() - self._started) * 1000)


def _settle(answered: "asyncio.Future[Delivery]", delivery: Delivery) -> None:
    if not answered.done():
        answered.set_result(delivery)
