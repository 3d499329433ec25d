import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.domain.call import Dispatch
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.outcome import Delivery, Phase
from gateway.domain.ports import Executor
from gateway.domain.reasons import ReasonCode
from gateway.executors.python import PythonExecutor
from tests.fakes.invocations import DECISION_ID, DOWNSTREAM_KEY, declare_tool, deliver, invoke

MODULE = "tests.fakes.python_tools"


def declare(function: str, **more: Any) -> ToolDeclaration:
    return declare_tool({"python": function if ":" in function else f"{MODULE}:{function}"}, **more)


@pytest.fixture
async def executor() -> AsyncIterator[PythonExecutor]:
    executor = PythonExecutor([MODULE], max_in_flight=1, max_stuck=60, max_result_bytes=1000, slot_wait=0.05)
    yield executor
    await executor.close()


async def run(executor: Executor, function: str, args: dict[str, Any] | None = None, **more: Any) -> Delivery:
    return await deliver(executor, invoke(declare(function, **more), args))


def told(delivery: Delivery) -> tuple[Any, ...]:
    assert delivery.status is None
    return delivery.phase, delivery.value, delivery.unusable, delivery.is_rejected, delivery.problem


async def test_a_plain_function_runs_in_a_thread_of_its_own(executor: PythonExecutor):
    value = {"args": {"a": [1]}, "subject": "ada", "key": DOWNSTREAM_KEY, "thread": "tool-a_tool"}
    assert told(await run(executor, "echo", {"a": [1]})) == (Phase.ANSWERED, value, None, False, None)


async def test_an_async_function_runs_as_a_task(executor: PythonExecutor):
    value: dict[str, Any] = {"args": {}, "decision_id": str(DECISION_ID)}
    assert told(await run(executor, "echo_async")) == (Phase.ANSWERED, value, None, False, None)


async def test_a_tool_cannot_change_the_arguments_of_the_call(executor: PythonExecutor):
    args = {"list": [1]}
    await run(executor, "change_arguments", args)
    assert args == {"list": [1]}


@pytest.mark.parametrize("function", ["reject", "reject_async"])
async def test_rejected_is_an_answer(executor: PythonExecutor, function: str):
    assert told(await run(executor, function)) == (Phase.ANSWERED, None, None, True, None)


@pytest.mark.parametrize("function", ["refuse", "refuse_async"])
async def test_not_sent_means_that_nothing_happened(executor: PythonExecutor, function: str):
    assert told(await run(executor, function)) == (Phase.NOT_SENT, None, None, False, "not_sent")


@pytest.mark.parametrize("function", ["fail", "fail_async", "leave", "leave_async", "cancel_itself"])
async def test_any_other_end_is_lost(executor: PythonExecutor, function: str):
    assert told(await run(executor, function)) == (Phase.LOST, None, None, False, "exception")


@pytest.mark.parametrize("function", ["fail", "fail_async", "reject", "refuse"])
async def test_no_text_of_an_exception_leaks(
    executor: PythonExecutor, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, function: str
):
    delivery = await run(executor, function)
    printed = capsys.readouterr()
    assert "FAKE" not in f"{delivery!r} {caplog.text} {printed.out} {printed.err}"


@pytest.mark.parametrize("function", ["block", "wait", "refuse_to_be_cancelled"])
async def test_a_call_that_takes_too_long_is_lost_on_time(executor: PythonExecutor, function: str):
    started = time.monotonic()
    delivery = await run(executor, function, {"seconds": 0.5}, timeout="100ms")
    assert told(delivery) == (Phase.LOST, None, None, False, "timeout")
    assert time.monotonic() - started < 0.4
    assert 90 <= delivery.duration_ms < 400  # loops round their clock


async def test_fifty_stuck_threads_leave_room_for_the_next_call(executor: PythonExecutor):
    for _ in range(50):
        await run(executor, "block", {"seconds": 1.0}, timeout="1ms")
    assert (await run(executor, "echo")).phase is Phase.ANSWERED


async def test_the_number_of_stuck_calls_is_bounded_and_recovers():
    executor = PythonExecutor([MODULE], max_stuck=2)
    await run(executor, "block", {"seconds": 0.3}, timeout="1ms")
    await run(executor, "refuse_to_be_cancelled", {"seconds": 0.3}, timeout="1ms")
    refusal = await executor.prepare(invoke(declare("echo")))
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.CONCURRENCY_LIMITED
    await asyncio.sleep(0.5)
    assert (await run(executor, "echo")).phase is Phase.ANSWERED


async def test_a_full_house_is_refused_after_a_short_wait(executor: PythonExecutor):
    held = await executor.prepare(invoke(declare("echo")))
    assert isinstance(held, Dispatch)
    refusal = await executor.prepare(invoke(declare("echo")))
    assert isinstance(refusal, Refusal)
    assert refusal.reason_code == ReasonCode.OVERLOADED
    held.release()
    assert (await run(executor, "echo")).phase is Phase.ANSWERED


async def test_a_cancelled_send_cancels_an_async_tool(executor: PythonExecutor):
    sending = asyncio.create_task(run(executor, "wait", {"seconds": 60}))
    await asyncio.sleep(0.05)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert (await run(executor, "echo")).phase is Phase.ANSWERED


async def test_without_a_thread_nothing_happened(executor: PythonExecutor, monkeypatch: pytest.MonkeyPatch):
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert told(await run(executor, "echo")) == (Phase.NOT_SENT, None, None, False, "no_thread")


async def test_results_are_cleaned_like_answers(executor: PythonExecutor):
    assert (await run(executor, "return_strange")).value == {"score": None, "text": "a\ufffdb\ufffd"}


@pytest.mark.parametrize(
    ("function", "unusable"),
    [("return_object", "invalid"), ("return_treacherous", "invalid"), ("forget_to_await", "invalid"), ("return_much", "too_large")],
)
async def test_a_result_that_cannot_be_used_is_still_an_answer(executor: PythonExecutor, function: str, unusable: str):
    assert told(await run(executor, function)) == (Phase.ANSWERED, None, unusable, False, None)


@pytest.mark.parametrize(
    "function",
    ["missing", "copyfile", "_hidden", "instance", "Callable2", "take_one", "take_three", "generate", "os:system", "tests.fakes:x", "asyncio:sleep"],
)  # fmt: skip
async def test_what_the_operator_did_not_list_is_out_of_reach(executor: PythonExecutor, function: str):
    reason = executor.check(declare(function), "default")
    assert reason is not None
    assert await executor.prepare(invoke(declare(function))) == Refusal(reason_code=ReasonCode.TOOL_DISABLED, detail=reason)


def test_a_module_that_cannot_be_imported_is_told_at_the_check():
    reason = PythonExecutor(["no_such_module_here"]).check(declare("no_such_module_here:run"), "default")
    assert reason == "the module no_such_module_here cannot be imported (ModuleNotFoundError)"


@pytest.mark.parametrize("function", ["echo", "echo_async"])
def test_a_fitting_function_passes_the_check(function: str):
    assert PythonExecutor([MODULE]).check(declare(function), "default") is None
