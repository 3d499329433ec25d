"""The proof of a revision at its activation: slow policies are refused, busy machines are not."""

import asyncio
from typing import Any

import orjson
import pytest

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.reasons import ReasonCode
from gateway.policy import worker
from gateway.policy.embedded import EmbeddedEngine
from gateway.policy.pool import prove
from gateway.policy.process import Evaluation

LIMIT_S = 0.05
NESTED = """
package gateway

numbers := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]

decision := {"is": "slow"} if {
	found := [1 | some a in numbers; some b in numbers; some c in numbers; some d in numbers; some e in numbers; (((a + b) + c) + d) + e == 61]
	count(found) == 0
}
"""


class BusyWorker:
    """Answers one evaluation after the other, each after its own time."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.kinds: list[bytes] = []

    def send(self, evaluation: Evaluation) -> None:
        self.kinds.append(evaluation.frame[4:5])
        answer = (worker.RESULT[0], b"{}")
        asyncio.get_running_loop().call_later(self.seconds.pop(0), evaluation.answer.set_result, answer)


async def prove_in_time(process: Any) -> None:
    await prove(process, LIMIT_S)


async def test_a_first_decision_that_a_busy_machine_delays_is_tried_again():
    process = BusyWorker(0.1, 0.1, 0.0)
    await prove_in_time(process)
    assert process.kinds == [worker.PROVE] * 3


async def test_a_first_decision_in_time_is_enough():
    process = BusyWorker(0.0)
    await prove_in_time(process)
    assert process.seconds == []


async def test_a_decision_that_is_never_in_time_is_refused():
    with pytest.raises(PolicyFault) as refused:
        await prove_in_time(BusyWorker(0.1, 0.1, 0.1))
    assert (refused.value.reason_code, refused.value.detail) == (
        ReasonCode.POLICY_TIMEOUT,
        "the evaluation exceeded its limit of 50 ms",
    )


async def test_loops_inside_loops_are_refused_at_activation_and_the_old_revision_stays():
    engine = EmbeddedEngine()
    try:
        quick = 'package gateway\n\ndecision := {"is": "quick"}\n'
        await engine.activate(PolicySet(revision="r1", modules={"gateway.rego": quick}, data={}))
        with pytest.raises(PolicyFault) as refused:
            await engine.activate(PolicySet(revision="r2", modules={"gateway.rego": NESTED}, data={}))
        assert refused.value.reason_code is ReasonCode.POLICY_TIMEOUT
        assert await engine.decide("r1", orjson.dumps({})) == {"is": "quick"}
    finally:
        await engine.close()
