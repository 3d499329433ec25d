"""What every executor promises, run over each of them with real faults.

A new executor adds one factory: how to declare a tool of its kind that behaves as each word of `Behaviour` says.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.outcome import Phase
from gateway.domain.ports import Executor
from gateway.domain.reasons import ReasonCode
from gateway.executors import Executors
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from gateway.executors.python import PythonExecutor
from tests.fakes.broken_server import find_refused_origin, read_then_close, read_then_hang, run_broken_server
from tests.fakes.invocations import declare_http_tool, declare_tool, deliver, invoke
from tests.fakes.spy_service import run_spy_service

Behaviour = Literal["answers", "answers strangely", "breaks", "hangs", "cannot be reached", "is not known"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An executor with room for one call, and its tools."""

    executor: Executor
    declare: Callable[[Behaviour], ToolDeclaration]


@asynccontextmanager
async def http_subject() -> AsyncGenerator[Subject]:
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(run_spy_service())
        plain.body = b'{"args": {"seconds": 60}}'
        strange = await stack.enter_async_context(run_spy_service())
        strange.body = b'{"score": NaN, "text": "a\\u0000b\\ud800"}'
        origins: dict[Behaviour, str] = {
            "answers": plain.origin,
            "answers strangely": strange.origin,
            "breaks": (await stack.enter_async_context(run_broken_server(read_then_close))).origin,
            "hangs": (await stack.enter_async_context(run_broken_server(read_then_hang))).origin,
            "cannot be reached": find_refused_origin(),
        }
        names = {behaviour: behaviour.replace(" ", "-") for behaviour in origins}
        connections = {names[behaviour]: Connection(name=behaviour, origin=origin, internal=True) for behaviour, origin in origins.items()}

        def declare(behaviour: Behaviour) -> ToolDeclaration:
            return declare_http_tool("DELETE", connection=names.get(behaviour, "unknown"), timeout="300ms", risk="write")

        yield Subject(executor=HttpExecutor(connections, max_in_flight=1, slot_wait=0.02), declare=declare)


@asynccontextmanager
async def python_subject() -> AsyncGenerator[Subject]:
    functions: dict[Behaviour, str] = {
        "answers": "echo",
        "answers strangely": "return_strange",
        "breaks": "fail",
        "hangs": "wait",
        "cannot be reached": "refuse",
        "is not known": "missing",
    }

    def declare(behaviour: Behaviour) -> ToolDeclaration:
        return declare_tool({"python": f"tests.fakes.python_tools:{functions[behaviour]}"}, timeout="300ms", risk="write")

    yield Subject(executor=PythonExecutor(["tests.fakes.python_tools"], max_in_flight=1, slot_wait=0.02), declare=declare)


@asynccontextmanager
async def routed_subject() -> AsyncGenerator[Subject]:
    async with http_subject() as http:
        yield Subject(executor=Executors({"http": http.executor}), declare=http.declare)


@pytest.fixture(params=[http_subject, python_subject, routed_subject])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    async with request.param() as subject:
        yield subject
        await subject.executor.close()


ARGS: dict[str, Any] = {"seconds": 60}
EXPECTED: dict[Behaviour, tuple[Phase, str | None]] = {
    "answers": (Phase.ANSWERED, None),
    "answers strangely": (Phase.ANSWERED, None),
    "hangs": (Phase.LOST, "timeout"),
}


@pytest.mark.parametrize("behaviour", EXPECTED)
async def test_a_delivery_tells_its_phase_and_problem(subject: Subject, behaviour: Behaviour):
    delivery = await deliver(subject.executor, invoke(subject.declare(behaviour), ARGS))
    assert (delivery.phase, delivery.problem) == EXPECTED[behaviour]
    assert delivery.duration_ms > 0


async def test_a_tool_that_breaks_underway_is_lost_with_its_problem_named(subject: Subject):
    delivery = await deliver(subject.executor, invoke(subject.declare("breaks"), ARGS))
    assert delivery.phase is Phase.LOST
    assert delivery.problem in {"reset", "exception"}


async def test_a_tool_that_cannot_be_reached_was_sent_nothing(subject: Subject):
    delivery = await deliver(subject.executor, invoke(subject.declare("cannot be reached"), ARGS))
    assert delivery.phase is Phase.NOT_SENT
    assert delivery.problem is not None


async def test_an_answer_carries_its_value(subject: Subject):
    delivery = await deliver(subject.executor, invoke(subject.declare("answers"), ARGS))
    assert delivery.value["args"] == ARGS


async def test_an_answer_is_always_storable(subject: Subject):
    delivery = await deliver(subject.executor, invoke(subject.declare("answers strangely"), ARGS))
    assert delivery.value == {"score": None, "text": "a\ufffdb\ufffd"}


async def test_the_check_passes_what_can_run_and_names_what_cannot(subject: Subject):
    assert subject.executor.check(subject.declare("answers"), "default") is None
    reason = subject.executor.check(subject.declare("is not known"), "default")
    assert reason
    refusal = await subject.executor.prepare(invoke(subject.declare("is not known"), ARGS))
    assert refusal == Refusal(reason_code=ReasonCode.TOOL_DISABLED, detail=reason)


@pytest.mark.parametrize("behaviour", ["answers", "answers strangely", "breaks", "hangs", "cannot be reached"])
async def test_a_slot_comes_back_however_the_call_ended(subject: Subject, behaviour: Behaviour):
    for _ in range(2):
        await deliver(subject.executor, invoke(subject.declare(behaviour), ARGS))
    assert (await deliver(subject.executor, invoke(subject.declare("answers"), ARGS))).phase is Phase.ANSWERED


async def test_a_prepared_call_holds_a_slot_and_release_without_send_returns_it(subject: Subject):
    held = await subject.executor.prepare(invoke(subject.declare("answers"), ARGS))
    assert isinstance(held, Dispatch)
    refusal = await subject.executor.prepare(invoke(subject.declare("answers"), ARGS))
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.OVERLOADED
    held.release()
    assert (await deliver(subject.executor, invoke(subject.declare("answers"), ARGS))).phase is Phase.ANSWERED


async def test_a_cancelled_send_is_cancelled(subject: Subject):
    sending = asyncio.create_task(deliver(subject.executor, invoke(subject.declare("hangs"), ARGS)))
    await asyncio.sleep(0.05)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
