"""The loop of one run: ask the model, store its turn whole, govern its calls, answer the turn, until it answers or a bound ends it.

Everything that decides how to go on is read from what is stored, so that whoever takes the run over does the same. What was
not stored did not happen as far as the run knows: a request to the model may be made again, a stored turn never is.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import orjson

from gateway.dialects.gemini import declarations, write_turn
from gateway.domain.authority import find_scope, visible_tools
from gateway.domain.reasons import ReasonCode
from gateway.domain.result import Answer
from gateway.domain.runs import MAX_TURN_BYTES, Ended, Event, HeldRun, HoldLost, RunEnd, RunState, Step, StoredEvent, Turn
from gateway.runs.journal import HandOver, Journal
from gateway.runs.model import Model, ModelFault
from gateway.runs.parts import Parts
from gateway.runs.rounds import Round
from gateway.runs.turns import Calls, Steer, Stop, conversation, judge, read, user_text

MODEL_ATTEMPTS = 4
"""Requests for one turn, where the model's service is away or overloaded."""
FIRST_PAUSE_S = 1.0
"""Before the second of them; doubles, unless the service says how long."""

T = TypeVar("T")


class _Over(Exception):
    """The run has an end."""

    def __init__(self, end: RunEnd, *, answer: str | None = None, detail: str | None = None) -> None:
        super().__init__(end)
        self.end = end
        self.answer = answer
        self.detail = detail


class Loop:
    """One run in the hands of this gateway."""

    def __init__(self, parts: Parts, model: Model, run: HeldRun) -> None:
        self._parts = parts
        self._model = model
        self._run = run
        self._key = run.hold.key
        self._journal = Journal(parts, run.hold, run.last_event_id)
        self._turns = list(run.turns)
        self._told: tuple[StoredEvent, ...] = run.open_events
        self._model_calls = run.model_calls
        self._tokens = run.tokens

    async def run(self) -> None:
        """Go on until the run has ended, or is another gateway's."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._journal.keep_writing()), group.create_task(self._keep_hold())]
                await self._go_on()
                for helper in helpers:
                    helper.cancel()
        except* HoldLost:
            pass  # cancelled, or another gateway's by now: nothing is left to do here
        except* HandOver:
            await self._give_back()

    async def _go_on(self) -> None:
        try:
            async with asyncio.timeout(max(self._run.seconds_left, 0.0)):
                while True:
                    await self._go_one_step()
        except _Over as over:
            ended = over
        except TimeoutError:
            ended = _Over(RunEnd.RUN_TIME_EXHAUSTED)
        except (HoldLost, HandOver):
            raise
        except Exception as defect:  # noqa: BLE001 - a defect of ours ends this run, where it would come back for ever
            self._parts.report(defect)
            ended = _Over(RunEnd.RUN_BROKEN)
        await self._end(ended)

    async def _go_one_step(self) -> None:
        if self._parts.draining.is_set():
            raise HandOver
        if self._turns and self._turns[-1].reply is None:
            await self._answer_turn()
        else:
            await self._ask()

    async def _answer_turn(self) -> None:
        found = judge(self._turns)
        if isinstance(found, Stop):
            raise _Over(found.end, answer=found.answer)
        if len(self._turns) > self._run.bounds.rounds:
            raise _Over(RunEnd.RUN_ROUNDS_EXHAUSTED)
        turn = self._turns[-1]
        if isinstance(found, Steer):
            reply, events = (
                user_text(found.note),
                [Event(type="model.steered", data={"turn": turn.number, "reason_code": found.code.value})],
            )
        else:
            reply, events = await self._govern(turn.number, found)
        written = orjson.dumps(reply)
        await self._journal.write(Step(reply=(turn.number, written), events=events))
        self._turns[-1] = Turn(number=turn.number, response=turn.response, reply=written)

    async def _govern(self, number: int, found: Calls) -> tuple[dict[str, Any], list[Event]]:
        """Let the calls of a turn be governed; the content that answers it."""
        told, self._told = self._told, ()
        answers = await Round(self._parts, self._journal, self._run, turn=number, calls=found, told=told).run()
        reply = write_turn(found.calls, [Answer.model_validate(answer) for answer in answers])
        if found.note is None:
            return reply, []
        reply["parts"].append({"text": found.note})
        return reply, [Event(type="model.steered", data={"turn": number, "reason_code": RunEnd.MODEL_REPEATS.value})]

    async def _ask(self) -> None:
        """Ask for the next turn and store it as it came."""
        contents = conversation(self._run.prompt, self._turns)
        if contents is None:
            raise _Over(RunEnd.RUN_TOO_LARGE)
        if self._tokens >= self._run.bounds.tokens:
            raise _Over(RunEnd.RUN_TOKENS_EXHAUSTED)
        tools = await self._tools()
        began = time.monotonic()
        response = await self._ask_patiently(contents, tools)
        if len(response) > MAX_TURN_BYTES:
            raise _Over(RunEnd.RUN_TOO_LARGE)
        found, turn = read(response), Turn(number=len(self._turns), response=response)
        facts = {
            "turn": turn.number,
            "model": self._run.model,
            "calls": len(found.calls),
            "tokens": found.tokens,
            "finish_reason": found.finish_reason,
            "duration_ms": round((time.monotonic() - began) * 1_000),
        }
        await self._journal.write(Step(turn=turn, tokens=found.tokens, events=[Event(type="model.called", data=facts)]))
        self._turns.append(turn)
        self._tokens += found.tokens

    async def _ask_patiently(self, contents: list[dict[str, Any]], tools: list[dict[str, Any]]) -> bytes:
        pause = FIRST_PAUSE_S
        for attempt in range(1, MODEL_ATTEMPTS + 1):
            self._model_calls = await self._journal.patiently(lambda: self._parts.store.count_model_call(self._run.hold))
            if self._model_calls > self._run.bounds.model_calls:
                raise _Over(RunEnd.RUN_MODEL_CALLS_EXHAUSTED)
            try:
                return await self._or_hand_over(self._model.ask(self._run.model, contents, tools))
            except ModelFault as fault:
                if not fault.is_transient:
                    raise _Over(RunEnd.MODEL_REFUSED, detail=fault.problem) from None
                if attempt == MODEL_ATTEMPTS:
                    raise _Over(RunEnd.MODEL_UNAVAILABLE, detail=fault.problem) from None
                wait = fault.retry_after_s if fault.retry_after_s is not None else pause * random.uniform(1, 1.25)  # noqa: S311 - a pause
                facts = {"turn": len(self._turns), "attempt": attempt, "problem": fault.problem, "retry_after_ms": round(wait * 1_000)}
                self._journal.tell(Event(type="model.retried", data=facts))
                await self._or_hand_over(asyncio.sleep(wait))
                pause *= 2
        raise AssertionError("unreachable")

    async def _tools(self) -> list[dict[str, Any]]:
        """The declarations that this agent may use now."""
        while (in_force := self._parts.in_force(self._key.tenant)) is None:
            await self._or_hand_over(asyncio.sleep(FIRST_PAUSE_S))
        scope = find_scope(in_force.bundle, self._key.agent, self._run.workflow, self._run.subject, controls=in_force.controls)
        if isinstance(scope, ReasonCode):
            raise _Over(RunEnd.RUN_NOT_ALLOWED, detail=scope.value)
        return declarations(tool.declaration for tool in visible_tools(in_force.bundle, scope, controls=in_force.controls))

    async def _end(self, over: _Over) -> None:
        if over.end is RunEnd.RUN_ANSWERED:
            counts = {"rounds": len(self._turns) - 1, "model_calls": self._model_calls, "tokens": self._tokens}
            events = [Event(type="answer", data={"text": over.answer}), Event(type="run.finished", data=counts)]
            ended = Ended(state=RunState.ANSWERED, end=over.end, answer=over.answer)
        else:
            facts: Mapping[str, Any] = {"reason_code": over.end.value, "message": over.end.message, "is_resumable": over.end.is_resumable}
            events = [Event(type="run.failed", data=facts | ({"detail": over.detail} if over.detail else {}))]
            ended = Ended(state=RunState.FAILED, end=over.end)
        await self._journal.write(Step(events=events, ended=ended))

    async def _keep_hold(self) -> None:
        """Renew the lease until cancelled. Raises HoldLost."""
        while True:
            await asyncio.sleep(self._parts.lease_s / 3)
            await self._journal.patiently(lambda: self._parts.store.renew(self._run.hold, lease_s=self._parts.lease_s))

    async def _or_hand_over(self, work: Awaitable[T]) -> T:
        """What `work` finds; given up at once where this gateway stops. Raises HandOver."""
        working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self._parts.draining.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise HandOver
        finally:
            for task in (working, stopping):
                task.cancel()

    async def _give_back(self) -> None:
        try:
            await self._parts.store.release(self._run.hold)
        except Exception as fault:  # noqa: BLE001 - then the lease runs out by itself
            self._parts.report(fault)
