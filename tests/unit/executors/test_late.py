"""Listening on after a write's time is over: one request, its slot kept, one final delivery."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.domain.call import Dispatch
from gateway.domain.decision import Refusal
from gateway.domain.outcome import Delivery, Phase
from gateway.domain.ports import Executor
from gateway.domain.reasons import ReasonCode
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from gateway.executors.late import Listeners, lost
from gateway.executors.python import PythonExecutor
from tests.fakes.broken_server import read_then_hang, run_broken_server
from tests.fakes.invocations import declare_http_tool, declare_tool, deliver, invoke
from tests.fakes.spy_service import SpyService, run_spy_service

MODULE = "tests.fakes.python_tools"
UNKNOWN = Delivery(phase=Phase.LOST, problem="timeout")


async def final(delivery: Delivery) -> Delivery:
    assert (delivery.phase, delivery.problem) == (Phase.LOST, "timeout")
    assert delivery.late is not None
    return await delivery.late


def told(delivery: Delivery) -> tuple[object, ...]:
    assert delivery.late is None
    return delivery.phase, delivery.status, delivery.value, delivery.problem


@pytest.fixture
async def spy() -> AsyncIterator[SpyService]:
    async with run_spy_service() as service:
        yield service


def http_for(origin: str, *, late_s: float = 30.0, max_in_flight: int = 2) -> HttpExecutor:
    connection = Connection(name="spy", origin=origin, internal=True)
    return HttpExecutor({"spy": connection}, max_in_flight=max_in_flight, slot_wait=0.01, late_s=late_s)


WRITE = declare_http_tool("POST", risk="write", timeout="100ms")


async def test_a_write_that_answers_late_is_sent_once_and_its_answer_arrives(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s, spy.body = 0.4, b'{"ref": "b-1"}'
    delivery = await deliver(executor, invoke(WRITE))
    late = await final(delivery)
    assert told(late) == (Phase.ANSWERED, 200, {"ref": "b-1"}, None)
    assert late.duration_ms > delivery.duration_ms > 0
    assert len(spy.arrivals) == 1
    await executor.close()


async def test_a_late_delivery_plays_no_part_in_comparisons_and_texts(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s = 0.4
    delivery = await deliver(executor, invoke(WRITE))
    assert delivery == Delivery(phase=Phase.LOST, problem="timeout", duration_ms=delivery.duration_ms)
    assert "late" not in repr(delivery)
    await executor.close()


async def test_a_read_is_not_listened_to(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s = 0.4
    assert (await deliver(executor, invoke(declare_http_tool(timeout="100ms")))).late is None
    await executor.close()


async def test_a_write_that_never_answers_is_lost_when_listening_ends():
    async with run_broken_server(read_then_hang) as server:
        executor = http_for(server.origin, late_s=0.2)
        assert told(await final(await deliver(executor, invoke(WRITE)))) == (Phase.LOST, None, None, "timeout")
        assert server.requests == 1
        await executor.close()


async def test_a_write_that_was_not_sent_is_not_listened_to():
    async def hang(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with run_broken_server(lambda _: hang) as server:
        executor = http_for(server.origin.replace("http:", "https:"))
        assert told(await deliver(executor, invoke(WRITE))) == (Phase.NOT_SENT, None, None, "timeout")
        await executor.close()


async def test_the_slot_stays_taken_while_its_write_is_listened_to(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s = 0.4
    delivery = await deliver(executor, invoke(WRITE))
    held = await executor.prepare(invoke(WRITE))
    assert isinstance(held, Dispatch)
    refusal = await executor.prepare(invoke(WRITE))
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.OVERLOADED
    await final(delivery)
    assert isinstance(await executor.prepare(invoke(WRITE)), Dispatch)
    await executor.close()


async def test_half_of_the_slots_never_listen(spy: SpyService):
    executor = http_for(spy.origin, max_in_flight=4)
    spy.delay_s = 5
    deliveries = [await deliver(executor, invoke(WRITE)) for _ in range(6)]
    assert [delivery.late is not None for delivery in deliveries] == [True, True, False, False, False, False]
    held = [await executor.prepare(invoke(WRITE)) for _ in range(3)]
    assert [isinstance(each, Dispatch) for each in held] == [True, True, False]
    await executor.close()


async def test_closing_ends_listening_with_a_lost_delivery(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s = 60
    delivery = await deliver(executor, invoke(WRITE))
    waiting = asyncio.create_task(final(delivery))
    await asyncio.sleep(0)
    await executor.close()
    assert told(await waiting) == (Phase.LOST, None, None, "timeout")


async def test_whoever_stops_waiting_for_a_late_answer_ends_the_request(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s = 60
    delivery = await deliver(executor, invoke(WRITE))
    waiting = asyncio.create_task(final(delivery))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    held = [await executor.prepare(invoke(WRITE)) for _ in range(2)]
    assert all(isinstance(each, Dispatch) for each in held)
    await executor.close()


async def test_a_cancelled_write_is_not_listened_to(spy: SpyService):
    executor = http_for(spy.origin)
    spy.delay_s = 60
    sending = asyncio.create_task(deliver(executor, invoke(declare_http_tool("POST", risk="write"))))
    while not spy.arrivals:  # noqa: ASYNC110 - the spy knows nothing of events
        await asyncio.sleep(0.01)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    held = [await executor.prepare(invoke(WRITE)) for _ in range(2)]
    assert all(isinstance(each, Dispatch) for each in held)
    await executor.close()


@pytest.fixture
async def python() -> AsyncIterator[PythonExecutor]:
    executor = PythonExecutor([MODULE], max_in_flight=2, max_stuck=1, slot_wait=0.01, late_s=30.0)
    yield executor
    await executor.close()


async def run(executor: Executor, function: str, seconds: float, risk: str = "write") -> Delivery:
    tool = declare_tool({"python": f"{MODULE}:{function}"}, risk=risk, timeout="50ms")
    return await deliver(executor, invoke(tool, {"seconds": seconds}))


@pytest.mark.parametrize("function", ["block_and_answer", "wait_and_answer"])
async def test_a_function_that_writes_may_answer_late(python: PythonExecutor, function: str):
    late = await final(await run(python, function, 0.3))
    assert told(late) == (Phase.ANSWERED, None, {"done": True}, None)
    assert late.duration_ms > 200


@pytest.mark.parametrize("function", ["block_and_answer", "wait_and_answer"])
async def test_a_function_that_reads_is_not_listened_to(python: PythonExecutor, function: str):
    assert (await run(python, function, 0.3, risk="read")).late is None


@pytest.mark.parametrize("function", ["block_and_answer", "wait_and_answer", "refuse_to_be_cancelled"])
async def test_a_function_that_never_ends_is_lost_when_listening_ends(function: str):
    executor = PythonExecutor([MODULE], max_in_flight=2, late_s=0.1)
    assert told(await final(await run(executor, function, 0.6))) == (Phase.LOST, None, None, "timeout")
    await executor.close()


async def test_a_function_counts_as_left_behind_only_after_it_was_listened_to(python: PythonExecutor):
    listened = await run(python, "block_and_answer", 0.4)
    assert listened.late is not None
    assert (await run(python, "wait_and_answer", 0.0)).phase is Phase.ANSWERED
    await final(listened)


async def test_too_many_listeners_are_refused_and_a_closed_set_takes_none():
    listeners, abandoned = Listeners(1, 30.0), list[int]()
    answers = [asyncio.get_running_loop().create_future() for _ in range(3)]
    first = listeners.listen(answers[0], lambda: abandoned.append(0))
    assert first is not None
    assert listeners.listen(answers[1], lambda: abandoned.append(1)) is None
    await listeners.close()
    assert (await first, abandoned) == (lost("timeout"), [0])
    assert listeners.listen(answers[2], lambda: abandoned.append(2)) is None
    await Listeners(1).close()
