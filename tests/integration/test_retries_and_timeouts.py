"""Cases 36 and 38 over real sockets and threads: no retry storm, no second write, and no pool that runs dry."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.domain.answers import outcome_result
from gateway.domain.call import Dispatch, Normalized
from gateway.domain.catalogue import Bundle, PolicySet, ToolDeclaration
from gateway.domain.outcome import CallState, Phase
from gateway.domain.ports import Executor
from gateway.domain.reasons import ReasonCode
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from gateway.executors.python import PythonExecutor
from gateway.stages.execute import Execute
from gateway.stages.normalize import Normalize
from tests.fakes.admitted import admit
from tests.fakes.broken_server import answer_once_then_close_on_the_next, find_refused_origin, read_then_close, run_broken_server
from tests.fakes.invocations import declare_http_tool, declare_tool, invoke
from tests.fakes.spy_service import SpyService, run_spy_service

BUNDLE = Bundle(
    name="testing",
    revision="sha256:0",
    tools={},
    workflows={},
    agents={},
    subjects={},
    persons={},
    budgets=(),
    own_reasons={},
    policy=PolicySet(revision="sha256:0", modules={}, data={}),
)
RULES: dict[str, Any] = {"no_effect": {"status": [429, 503]}}
READ = declare_http_tool(timeout="5s", result=RULES)
WRITE = declare_http_tool("POST", timeout="5s", result=RULES, risk="write", replay="safe")


class Acting:
    """The stages after admission, up to the outcome, over one executor."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._execute, self._normalize = Execute(print, lambda: 0.0), Normalize()

    async def __call__(self, tool: ToolDeclaration, args: dict[str, Any] | None = None) -> Normalized:
        dispatch = await self.executor.prepare(invoke(tool, args))
        assert isinstance(dispatch, Dispatch), dispatch
        return await self._normalize(await self._execute(admit(tool, dispatch)))


def connect(origin: str) -> Acting:
    return Acting(HttpExecutor({"spy": Connection(name="spy", origin=origin, internal=True)}))


@pytest.fixture
async def spy() -> AsyncIterator[SpyService]:
    async with run_spy_service() as service:
        yield service


@pytest.fixture
async def acting(spy: SpyService) -> AsyncIterator[Acting]:
    acting = connect(spy.origin)
    yield acting
    await acting.executor.close()


@pytest.mark.parametrize(
    ("status", "headers", "arrivals", "told"),
    [
        (404, {}, 1, ("failed", "EXECUTION_REJECTED", None)),
        (400, {}, 1, ("failed", "EXECUTION_REJECTED", None)),
        (429, {"Retry-After": "30"}, 1, ("temporary_error", "NO_EFFECT_PROVEN", 30_000)),
        (503, {"Retry-After": "30"}, 1, ("temporary_error", "NO_EFFECT_PROVEN", 30_000)),
        (429, {}, 3, ("temporary_error", "NO_EFFECT_PROVEN", 1000)),
        (503, {}, 3, ("temporary_error", "NO_EFFECT_PROVEN", 1000)),
        (500, {}, 3, ("temporary_error", "EXECUTION_TEMPORARY", 1000)),
        (302, {"Location": "/elsewhere"}, 1, ("temporary_error", "EXECUTION_TEMPORARY", 1000)),
    ],
)
async def test_a_failing_read_arrives_a_bounded_number_of_times(
    spy: SpyService, acting: Acting, status: int, headers: dict[str, str], arrivals: int, told: tuple[str, str, int | None]
):
    spy.status, spy.headers = status, headers
    call = await acting(READ)
    result = outcome_result(BUNDLE, call.outcome)
    assert (result["status"], result["reason_code"], result.get("retry_after_ms")) == told
    assert (len(spy.arrivals), call.delivered.attempts) == (arrivals, arrivals)


@pytest.mark.parametrize("status", [400, 404, 408, 429, 500, 503])
async def test_a_failing_write_arrives_once(spy: SpyService, acting: Acting, status: int):
    spy.status = status
    await acting(WRITE)
    assert len(spy.arrivals) == 1


async def test_a_read_whose_connection_dies_is_sent_again_and_works():
    async with run_broken_server(answer_once_then_close_on_the_next) as server:
        acting = connect(server.origin)
        await acting(READ)
        call = await acting(READ)
        assert (call.outcome.state, call.delivered.attempts, server.requests) == (CallState.SUCCEEDED, 2, 3)
        await acting.executor.close()


async def test_a_write_whose_connection_dies_is_in_doubt_and_arrived_once():
    async with run_broken_server(read_then_close) as server:
        acting = connect(server.origin)
        call = await acting(WRITE)
        assert (call.outcome.state, call.delivered.attempts, server.requests) == (CallState.IN_DOUBT, 1, 1)
        await acting.executor.close()


async def test_a_read_that_reaches_nobody_is_tried_three_times():
    acting = connect(find_refused_origin())
    call = await acting(READ)
    assert (call.outcome.reason_code, call.delivered.phase, call.delivered.attempts) == (ReasonCode.NO_EFFECT_PROVEN, Phase.NOT_SENT, 3)
    await acting.executor.close()


async def test_reads_of_a_service_that_is_down_do_not_become_a_storm(spy: SpyService, acting: Acting):
    spy.status = 503
    calls = 0
    while isinstance(dispatch := await acting.executor.prepare(invoke(READ)), Dispatch):
        dispatch.release()
        await acting(READ)
        calls += 1
        assert calls < 1000
    assert len(spy.arrivals) == 20  # then the circuit is open, for further attempts of the same call too


async def test_a_write_that_times_out_is_in_doubt_and_its_late_answer_settles_it(spy: SpyService, acting: Acting):
    spy.delay_s, spy.body = 0.6, b'{"ref": "b-1"}'
    tool = declare_http_tool("POST", timeout="300ms", risk="write", replay="never")
    call = await acting(tool)
    assert (call.outcome.state, call.outcome.reason_code) == (CallState.IN_DOUBT, ReasonCode.OUTCOME_UNKNOWN)
    assert call.delivered.late is not None
    late = await call.delivered.late
    assert (late.phase, late.status, late.value) == (Phase.ANSWERED, 200, {"ref": "b-1"})
    assert len(spy.arrivals) == 1


@pytest.mark.parametrize("risk", ["read", "write"])
async def test_fifty_timeouts_of_a_blocking_function_leave_room_for_the_next_call(risk: str):
    acting = Acting(PythonExecutor(["tests.fakes.python_tools"], max_in_flight=64))
    block = declare_tool({"python": "tests.fakes.python_tools:block"}, risk=risk, timeout="1ms")
    expected = ReasonCode.EXECUTION_TIMEOUT if risk == "read" else ReasonCode.OUTCOME_UNKNOWN
    for _ in range(50):
        assert (await acting(block, {"seconds": 2.0})).outcome.reason_code == expected
    call = await acting(declare_tool({"python": "tests.fakes.python_tools:echo"}))
    assert call.outcome.reason_code == ReasonCode.EXECUTION_SUCCEEDED
    await acting.executor.close()
