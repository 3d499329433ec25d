"""The execute stage: one send for a write, bounded ones for a read, the slot given back once, whatever happens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.domain.call import Dispatch
from gateway.domain.outcome import Delivery, Phase
from gateway.stages.execute import Execute
from tests.fakes.admitted import admit
from tests.fakes.invocations import declare_http_tool

BUSY = Delivery(phase=Phase.ANSWERED, status=503)
FINE = Delivery(phase=Phase.ANSWERED, status=200, value={"a": 1})
WRITE: dict[str, Any] = {"risk": "write", "replay": "safe"}


@dataclass
class Time:
    """A clock that moves only when somebody sleeps or sends."""

    now: float = 100.0
    pauses: list[float] = field(default_factory=list[float])

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Scripted(Dispatch):
    """Delivers what it is told to, one after the other, each taking `takes` seconds."""

    def __init__(self, time: Time, script: Sequence[Delivery | Exception], *, takes: float = 0.0, repeats: bool = True) -> None:
        self._time = time
        self._script = list(script)
        self._takes = takes
        self._repeats = repeats
        self.sends = 0
        self.releases = 0

    async def send(self) -> Delivery:
        self.sends += 1
        self._time.now += self._takes
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def may_repeat(self) -> bool:
        return self._repeats

    def release(self) -> None:
        self.releases += 1


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def stage(time: Time) -> Execute:
    return Execute(lambda _: None, lambda: 0.0, clock=time, chance=lambda: 0.5, sleep=time.sleep)


async def run(stage: Execute, dispatch: Scripted, **tool: Any) -> Delivery:
    executed = await stage(admit(declare_http_tool(**tool), dispatch))
    assert dispatch.releases == 1
    return executed.delivered


async def test_what_works_is_sent_once(stage: Execute, time: Time):
    assert await run(stage, Scripted(time, [FINE])) == FINE
    assert time.pauses == []


async def test_a_read_is_sent_again_until_it_works_and_says_how_often(stage: Execute, time: Time):
    delivery = await run(stage, Scripted(time, [BUSY, FINE], takes=0.25))
    assert (delivery.value, delivery.attempts, delivery.duration_ms) == ({"a": 1}, 2, pytest.approx(550))
    assert time.pauses == [0.05]


async def test_a_read_is_sent_three_times_at_most_with_growing_pauses(stage: Execute, time: Time):
    dispatch = Scripted(time, [BUSY] * 9)
    delivery = await run(stage, dispatch)
    assert (dispatch.sends, delivery.status, delivery.attempts) == (3, 503, 3)
    assert time.pauses == [0.05, 0.1]


@pytest.mark.parametrize("status", [503, 500, 408])
async def test_a_write_is_sent_once_whatever_comes(stage: Execute, time: Time, status: int):
    dispatch = Scripted(time, [Delivery(phase=Phase.ANSWERED, status=status), FINE])
    delivery = await run(stage, dispatch, result={"no_effect": {"status": [503]}}, **WRITE)
    assert (dispatch.sends, delivery.status, delivery.attempts) == (1, status, 1)


async def test_waits_as_long_as_the_tool_asks_for(stage: Execute, time: Time):
    asked = Delivery(phase=Phase.ANSWERED, status=503, retry_after_ms=1500)
    assert (await run(stage, Scripted(time, [asked, FINE]))).attempts == 2
    assert time.pauses == [1.55]


async def test_does_not_wait_for_what_would_come_after_the_calls_time(stage: Execute, time: Time):
    asked = Delivery(phase=Phase.ANSWERED, status=503, retry_after_ms=30_000)
    dispatch = Scripted(time, [asked, FINE])
    assert await run(stage, dispatch) == asked
    assert (dispatch.sends, time.pauses) == (1, [])


async def test_sends_nothing_after_the_tools_timeout(stage: Execute, time: Time):
    dispatch = Scripted(time, [BUSY] * 9, takes=1.0)
    await run(stage, dispatch, timeout="2s")
    assert dispatch.sends == 2


async def test_sends_nothing_where_the_dispatch_forbids_it(stage: Execute, time: Time):
    dispatch = Scripted(time, [BUSY, FINE], repeats=False)
    assert await run(stage, dispatch) == BUSY
    assert dispatch.sends == 1


async def test_a_tool_that_is_down_gets_ten_retries_and_a_tenth(stage: Execute, time: Time):
    sends = 0
    for _ in range(100):
        dispatch = Scripted(time, [BUSY] * 9)
        time.now = 100.0  # all at one moment
        await run(stage, dispatch)
        sends += dispatch.sends
    assert 110 <= sends <= 120


async def test_each_tool_has_retries_of_its_own(stage: Execute, time: Time):
    for _ in range(20):
        await run(stage, Scripted(time, [BUSY] * 9))
        time.now = 100.0
    dispatch = Scripted(time, [BUSY] * 9)
    await run(stage, dispatch, name="another_tool")
    assert dispatch.sends == 3


@pytest.mark.parametrize("script", [[RuntimeError("FAKE")], [BUSY, RuntimeError("FAKE")]])
async def test_a_fault_of_an_executor_is_reported_and_lost(time: Time, script: list[Delivery | Exception]):
    reported: list[Exception] = []
    stage = Execute(reported.append, lambda: 0.0, clock=time, chance=lambda: 0.5, sleep=time.sleep)
    delivery = await run(stage, Scripted(time, script))
    assert (delivery.phase, delivery.problem) == (Phase.LOST, "internal")
    assert len(reported) == 1


async def test_a_process_that_was_held_up_past_its_lease_sends_nothing(time: Time):
    stage = Execute(lambda _: None, lambda: 1.0, clock=time, sleep=time.sleep)
    dispatch = Scripted(time, [FINE])
    assert await run(stage, dispatch) == Delivery(phase=Phase.NOT_SENT, problem="lease")
    assert dispatch.sends == 0
