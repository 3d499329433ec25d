"""What every policy engine must do; one suite, run over each adapter by a factory."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
import uvloop

from gateway.domain.catalogue import PolicySet
from gateway.domain.decision import PolicyFault
from gateway.domain.policy_input import CANARY
from gateway.domain.ports import PolicyEngine
from gateway.domain.reasons import ReasonCode
from gateway.policy.embedded import EmbeddedEngine
from gateway.policy.launch import ENVIRONMENT
from gateway.policy.worker import ANSWER_LIMIT
from tests.opa import pulled_opa

EngineFactory = Callable[[], PolicyEngine]

# Each rule is reached by its own `input.args.case`; the canary has none and gets the answer {"is": "canary"}.
MISBEHAVING = """
package gateway

case := object.get(input.args, "case", "canary")

decision := {"is": "canary"} if case == "canary"

decision := {"is": "ok", "n": input.args.n} if case == "ok"

decision := "false" if case == "text"

decision := {"effect": "perhaps"} if case == "unknown effect"

decision := null if case == "null"

decision := to_number("x") if case == "error"

decision := {"conflict": 1} if case == "conflict"

decision := {"conflict": 2} if case == "conflict"

decision := {"n": count({n | some a in many; some b in many; some c in many; n := (a * b) * c})} if case == "slow"

decision := concat("", [concat(",", ["0123456789" | some _ in few]) | some _ in few]) if case == "large"

few := numbers.range(1, 170)

many := numbers.range(1, 400)
"""

# OPA refuses to load recursion, and its memory is a matter of the host.
RUNAWAY = (
    MISBEHAVING
    + """
decision := numbers.range(1, 1000000000000) if case == "memory"

decision := {"n": deep(0)} if case == "crash"

deep(n) := deep(n + 1)
"""
)


def revision(name: str, source: str = MISBEHAVING, data: Mapping[str, Any] | None = None) -> PolicySet:
    return PolicySet(revision=name, modules={"gateway.rego": source}, data=data or {})


def document(case: str | None = None, n: int = 0) -> bytes:
    known = orjson.loads(CANARY)
    known["args"] = {"case": case, "n": n} if case else {}
    return orjson.dumps(known)


@pytest.fixture(params=["embedded", "opa"])
async def make_engine(request: pytest.FixtureRequest) -> AsyncIterator[EngineFactory]:
    if request.param == "embedded":
        yield EmbeddedEngine
    else:
        async with pulled_opa() as make:
            yield make


@pytest.fixture
async def engine(make_engine: EngineFactory) -> AsyncIterator[PolicyEngine]:
    engine = make_engine()
    await engine.activate(revision("r1"))
    assert await engine.is_ready()
    yield engine
    await engine.close()
    assert not await engine.is_ready()
    assert _workers() == []


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine()
    await engine.activate(revision("r1", RUNAWAY))
    yield engine
    await engine.close()
    assert _workers() == []


def _workers(of: int | None = None) -> list[psutil.Process]:
    return [child for child in psutil.Process(of).children() if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return any(part.endswith("worker.py") for part in process.cmdline())
    except psutil.Error:
        return False


async def fault_of(engine: PolicyEngine, case: str) -> ReasonCode:
    with pytest.raises(PolicyFault) as caught:
        await engine.decide("r1", document(case))
    assert len(caught.value.detail) <= 500
    assert "Stack backtrace" not in caught.value.detail
    return caught.value.reason_code


class TestAnswers:
    async def test_gives_the_answer_as_json(self, engine: PolicyEngine) -> None:
        assert await engine.decide("r1", document("ok", 7)) == {"is": "ok", "n": 7}

    @pytest.mark.parametrize(("case", "raw"), [("text", "false"), ("null", None), ("unknown effect", {"effect": "perhaps"})])
    async def test_passes_what_is_not_a_decision_through_unchecked(self, engine: PolicyEngine, case: str, raw: object) -> None:
        assert await engine.decide("r1", document(case)) == raw

    async def test_tells_undefined_apart(self, engine: PolicyEngine) -> None:
        assert await fault_of(engine, "no rule has this case") is ReasonCode.POLICY_UNDEFINED

    @pytest.mark.parametrize("case", ["error", "conflict", "large"])
    async def test_an_error_is_a_fault_and_harms_nothing(self, engine: PolicyEngine, case: str) -> None:
        assert await fault_of(engine, case) is ReasonCode.POLICY_EVALUATION_ERROR
        assert await engine.decide("r1", document("ok", 1)) == {"is": "ok", "n": 1}

    async def test_input_that_is_no_json_is_a_fault_and_leaves_no_trace(self, engine: PolicyEngine) -> None:
        await engine.decide("r1", document("ok", 1))
        for broken in (b"{", b"", b"\xff", b'"\\ud800"'):
            with pytest.raises(PolicyFault):
                await engine.decide("r1", broken)
        assert await engine.decide("r1", document("ok", 2)) == {"is": "ok", "n": 2}


async def check_that_only_one_call_pays(engine: PolicyEngine, case: str, code: ReasonCode) -> None:
    before = [engine.decide("r1", document("ok", n)) for n in range(20)]
    after = [engine.decide("r1", document("ok", n)) for n in range(20, 40)]
    *answers, fault = await asyncio.gather(*before, *after, fault_of(engine, case))
    assert answers == [{"is": "ok", "n": n} for n in range(40)]
    assert fault is code
    assert await engine.decide("r1", document("ok", 41)) == {"is": "ok", "n": 41}


class TestRunaways:
    async def test_costs_only_its_own_call(self, engine: PolicyEngine) -> None:
        await check_that_only_one_call_pays(engine, "slow", ReasonCode.POLICY_TIMEOUT)

    async def test_is_ended_within_its_time(self, engine: PolicyEngine) -> None:
        async with asyncio.timeout(10):
            assert await fault_of(engine, "slow") is ReasonCode.POLICY_TIMEOUT


class TestRevisions:
    async def test_an_unknown_revision_is_stale(self, engine: PolicyEngine) -> None:
        with pytest.raises(PolicyFault) as caught:
            await engine.decide("r0", document("ok"))
        assert caught.value.reason_code is ReasonCode.POLICY_STALE

    async def test_switches_and_what_was_let_go_is_stale(self, engine: PolicyEngine) -> None:
        await engine.activate(revision("r2", 'package gateway\n\ndecision := {"is": "new"}\n'))
        await engine.retain({"r2"})
        assert await engine.decide("r2", document()) == {"is": "new"}
        with pytest.raises(PolicyFault) as caught:
            await engine.decide("r1", document())
        assert caught.value.reason_code is ReasonCode.POLICY_STALE

    async def test_calls_in_flight_get_the_revision_that_they_asked_or_none(self, engine: PolicyEngine) -> None:
        calls = [asyncio.create_task(engine.decide("r1", document("ok", n))) for n in range(100)]
        await asyncio.sleep(0)
        await engine.activate(revision("r2", 'package gateway\n\ndecision := {"is": "new"}\n'))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        kept = [answer for answer in answers if not isinstance(answer, PolicyFault)]
        assert kept == [{"is": "ok", "n": n} for n, answer in enumerate(answers) if not isinstance(answer, PolicyFault)]
        assert {answer.reason_code for answer in answers if isinstance(answer, PolicyFault)} <= {ReasonCode.POLICY_STALE}
        assert kept

    async def test_nothing_is_decided_before_the_first_activation(self, make_engine: EngineFactory) -> None:
        engine = make_engine()
        assert not await engine.is_ready()
        with pytest.raises(PolicyFault) as caught:
            await engine.decide("r1", document())
        assert caught.value.reason_code is ReasonCode.POLICY_ENGINE_UNAVAILABLE
        await engine.close()

    async def test_data_belongs_to_the_revision(self, engine: PolicyEngine) -> None:
        source = "package gateway\n\ndecision := data.limits\n"
        await engine.activate(revision("r2", source, {"limits": {"a": 1}}))
        assert await engine.decide("r2", document()) == {"a": 1}


class TestEmbeddedRunaways:
    """OPA refuses to load what crashes, and what fills its memory is off the list of builtins."""

    @pytest.mark.parametrize("case", ["memory", "crash"])
    async def test_costs_only_its_own_call(self, embedded: EmbeddedEngine, case: str) -> None:
        await check_that_only_one_call_pays(embedded, case, ReasonCode.POLICY_EVALUATION_ERROR)

    async def test_names_its_own_call_among_neighbours_before_and_after(self, embedded: EmbeddedEngine) -> None:
        calls = [embedded.decide("r1", document("crash" if n == 10 else "ok", n)) for n in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, answer in enumerate(answers) if isinstance(answer, PolicyFault)] == [10]

    async def test_one_after_the_other_each_gets_an_answer(self, embedded: EmbeddedEngine) -> None:
        for n in range(4):
            assert await fault_of(embedded, "crash") is ReasonCode.POLICY_EVALUATION_ERROR
            assert await embedded.decide("r1", document("ok", n)) == {"is": "ok", "n": n}


class TestEmbeddedRevisions:
    """It loads a revision beside the active one; OPA pulls what is in force (tests/integration/test_opa.py)."""

    async def test_decides_under_both_until_one_is_let_go(self, embedded: EmbeddedEngine) -> None:
        await embedded.activate(revision("r2", 'package gateway\n\ndecision := {"is": "new"}\n'))
        assert await embedded.decide("r2", document()) == {"is": "new"}
        assert await embedded.decide("r1", document("ok", 1)) == {"is": "ok", "n": 1}
        await embedded.retain({"r2"})
        with pytest.raises(PolicyFault) as caught:
            await embedded.decide("r1", document())
        assert caught.value.reason_code is ReasonCode.POLICY_STALE

    async def test_calls_in_flight_finish_under_the_revision_that_they_asked(self, embedded: EmbeddedEngine) -> None:
        calls = [asyncio.create_task(embedded.decide("r1", document("ok", n))) for n in range(100)]
        await asyncio.sleep(0)
        await embedded.activate(revision("r2", 'package gateway\n\ndecision := {"is": "new"}\n'))
        await embedded.retain({"r2"})
        assert await asyncio.gather(*calls) == [{"is": "ok", "n": n} for n in range(100)]

    @pytest.mark.parametrize(
        "source",
        [
            "package gateway\n\ndecision := {",
            "package gateway\n\ndecision := 1 if false\n",
            'package gateway\n\ndecision := to_number("x")\n',
            "package elsewhere\n",
            "package gateway\n\ndecision := f(0)\n\nf(n) := f(n + 1)\n",
        ],
        ids=["does not parse", "undefined", "error", "no entry point", "crashes"],
    )
    async def test_a_revision_that_cannot_decide_leaves_the_old_one_active(self, embedded: EmbeddedEngine, source: str) -> None:
        with pytest.raises(PolicyFault):
            await embedded.activate(revision("r2", source))
        assert await embedded.decide("r1", document("ok", 3)) == {"is": "ok", "n": 3}


class TestConcurrency:
    async def test_two_hundred_calls_get_their_own_answers(self, engine: PolicyEngine) -> None:
        answers = await asyncio.gather(*(engine.decide("r1", document("ok", n)) for n in range(200)))
        assert answers == [{"is": "ok", "n": n} for n in range(200)]

    async def test_callers_that_leave_do_not_shift_answers(self, engine: PolicyEngine) -> None:
        calls = [asyncio.create_task(engine.decide("r1", document("ok", n))) for n in range(100)]
        await asyncio.sleep(0)
        for call in calls[::3]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        kept = [answer for n, answer in enumerate(answers) if n % 3]
        assert kept == [{"is": "ok", "n": n} for n in range(100) if n % 3]
        assert await engine.decide("r1", document("ok", 5)) == {"is": "ok", "n": 5}

    async def test_large_inputs_pass(self, engine: PolicyEngine) -> None:
        known = orjson.loads(document("ok", 1))
        known["context"] = {"text": "x" * 250_000}
        large = orjson.dumps(known)
        answers = await asyncio.gather(*(engine.decide("r1", large) for _ in range(20)))
        assert answers == [{"is": "ok", "n": 1}] * 20


class TestEmbeddedOnly:
    """What only workers can promise."""

    async def test_has_a_name_with_its_version(self) -> None:
        assert EmbeddedEngine().name == "embedded regorus 0.13.0"

    async def test_sheds_beyond_its_queue(self) -> None:
        engine = EmbeddedEngine(queue_limit=10)
        await engine.activate(revision("r1", RUNAWAY))
        answers = await asyncio.gather(*(engine.decide("r1", document("ok", n)) for n in range(30)), return_exceptions=True)
        await engine.close()
        refused = [answer.reason_code for answer in answers if isinstance(answer, PolicyFault)]
        assert refused == [ReasonCode.POLICY_ENGINE_UNAVAILABLE] * 20

    async def test_several_workers_share_the_calls(self) -> None:
        engine = EmbeddedEngine(workers=3)
        await engine.activate(revision("r1", RUNAWAY))
        assert len(_workers()) == 4
        calls = [engine.decide("r1", document("crash" if n % 10 == 5 else "ok", n)) for n in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await engine.close()
        assert [n for n, answer in enumerate(answers) if isinstance(answer, PolicyFault)] == [5, 15]

    async def test_a_worker_killed_from_outside_is_replaced(self) -> None:
        engine = EmbeddedEngine()
        await engine.activate(revision("r1", RUNAWAY))
        for worker in _workers():
            worker.send_signal(signal.SIGKILL)
        await asyncio.sleep(0.05)
        answer = await engine.decide("r1", document("ok", 1))
        await engine.close()
        assert answer == {"is": "ok", "n": 1}

    async def test_a_stopped_worker_is_killed_by_the_gateway(self) -> None:
        engine = EmbeddedEngine()
        await engine.activate(revision("r1", RUNAWAY))
        for worker in _workers():
            worker.send_signal(signal.SIGSTOP)
        with pytest.raises(PolicyFault) as caught:
            await engine.decide("r1", document("ok", 1))
        await engine.close()
        assert caught.value.reason_code is ReasonCode.POLICY_TIMEOUT
        assert _workers() == []

    async def test_a_call_in_flight_at_close_is_answered_with_a_fault(self) -> None:
        engine = EmbeddedEngine()
        await engine.activate(revision("r1", RUNAWAY))
        call = asyncio.create_task(engine.decide("r1", document("slow")))
        await asyncio.sleep(0.01)
        await engine.close()
        with pytest.raises(PolicyFault):
            await call

    async def test_workers_see_nothing_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GATEWAY_TEST_SECRET", "hunter2")
        engine = EmbeddedEngine()
        await engine.activate(revision("r1", RUNAWAY))
        seen = [worker.environ() for worker in _workers()]
        await engine.close()
        assert seen == [dict(ENVIRONMENT)] * 2
        assert ENVIRONMENT.keys() == {"RUST_BACKTRACE", "MIMALLOC_ARENA_RESERVE", "LC_ALL"}

    async def test_workers_end_when_the_gateway_is_killed(self, tmp_path: Path) -> None:
        program = tmp_path / "gateway_to_kill.py"
        program.write_text(
            textwrap.dedent("""
            import asyncio, sys
            from gateway.domain.catalogue import PolicySet
            from gateway.policy.embedded import EmbeddedEngine

            async def main():
                engine = EmbeddedEngine()
                await engine.activate(PolicySet(revision="r1", modules={"g.rego": "package gateway\\ndecision := {}"}, data={}))
                print("ready", flush=True)
                await asyncio.sleep(60)

            asyncio.run(main())
            """)
        )
        environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]}
        gateway = await asyncio.create_subprocess_exec(sys.executable, str(program), stdout=asyncio.subprocess.PIPE, env=environment)
        assert gateway.stdout is not None
        assert await gateway.stdout.readline() == b"ready\n"
        workers = _workers(gateway.pid)
        assert len(workers) == 2
        gateway.kill()
        await gateway.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 3)
        assert alive == []

    def test_all_of_it_holds_on_the_loop_that_the_gateway_runs_on(self) -> None:
        """Uvloop notices dead workers and full pipes in another way than asyncio does."""

        async def scenario() -> None:
            engine = EmbeddedEngine()
            await engine.activate(revision("r1", RUNAWAY))
            for case in ("slow", "memory", "crash") * 2:
                calls = [engine.decide("r1", document(case if n == 20 else "ok", n)) for n in range(40)]
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert [n for n, answer in enumerate(answers) if answer != {"is": "ok", "n": n}] == [20]
                assert await engine.decide("r1", document("ok", 1)) == {"is": "ok", "n": 1}
            large = orjson.loads(document("ok", 1)) | {"context": {"text": "x" * 250_000}}
            assert await asyncio.gather(*(engine.decide("r1", orjson.dumps(large)) for _ in range(50))) == [{"is": "ok", "n": 1}] * 50
            await engine.close()

        uvloop.run(scenario())
        assert _workers() == []

    def test_an_answer_has_a_limit(self) -> None:
        assert ANSWER_LIMIT == 262_144
