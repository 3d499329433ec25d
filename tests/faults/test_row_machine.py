"""Hypothesis drives agents, an operator and crashes against a small model (model.py), then the checker looks at everything."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

import aiohttp
import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.evidence import Operation, read_effects
from tests.faults.fleet import OPERATOR_KEY, Fleet
from tests.faults.harness import fresh_database, judge, open_run, run_row
from tests.faults.load import Client, Wish, new_wish
from tests.faults.model import FIRST, Known, holds_its_action, learn, needs_a_person
from tests.faults.run_index import Violation

NAMES = ("g1", "g2")
STEPS = 30
CRASH_EVERY = 10
TOOLS = ("write_keyed", "write_probe", "write_never", "spend")
PLACES = st.integers(0, 99)
MODES = ("ok",) * 8 + tuple(FIRST)


class World:
    """The running system, reached from hypothesis' own thread."""

    def __init__(self, fleet: Fleet, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.fleet = fleet
        self._client = client
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run on the test's loop and wait."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def send(self, gateway: str, wish: Wish) -> Operation:
        """One request."""
        return self.run(self._client.send(gateway, wish))

    def restart(self, name: str) -> None:
        """Kill it and start it again."""
        self.fleet.kill(name)
        self.fleet.start(name)

    def resolve(self, decision_id: str, outcome: str) -> int:
        """A person's word on a doubt."""

        async def post() -> int:
            url = f"{self.fleet.url('g1')}/v1/calls/{decision_id}/resolve"
            body = {"outcome": outcome, "evidence": "the effect ledger"}
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json=body, headers={"Authorization": f"Bearer {OPERATOR_KEY}"}) as told,
            ):
                return told.status

        return self.run(post())

    def had_effect(self, known: Known) -> bool:
        """What the tool's own ledger says."""
        effects = read_effects(self.fleet.folder / "effects")
        return any(effect.event == "applied" and effect.call_id in known.decisions for effect in effects)


def make_machine(world: World) -> type[RuleBasedStateMachine]:  # noqa: C901 - the rules of one machine
    """The machine over a running system."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.known: list[Known] = []
            self.steps = 0

        def ask(self, known: Known, gateway: str) -> None:
            self.steps += 1
            told = world.send(gateway, known.wish)
            assert told.type == "ok", (told.type, told.http, told.why)
            assert told.answer is not None
            result = json.dumps(told.answer["result"], sort_keys=True)
            assert (wrong := learn(known, str(told.status), result, str(told.decision_id))) is None, wrong

        @rule(tool=st.sampled_from(TOOLS), mode=st.sampled_from(MODES), gateway=st.sampled_from(NAMES))
        def propose(self, tool: str, mode: str, gateway: str) -> None:
            known = Known(wish=new_wish(tool, mode), mode=mode)
            self.known.append(known)
            self.ask(known, gateway)

        # Which call a rule is about is drawn as a number: what hypothesis draws must not depend on what the system answered.

        @precondition(lambda self: self.known)
        @rule(place=PLACES, gateway=st.sampled_from(NAMES))
        def repeat(self, place: int, gateway: str) -> None:
            self.ask(self.known[place % len(self.known)], gateway)

        @precondition(lambda self: self.known)
        @rule(place=PLACES, gateway=st.sampled_from(NAMES))
        def change_the_input(self, place: int, gateway: str) -> None:
            wish = self.known[place % len(self.known)].wish
            told = world.send(gateway, replace(wish, args=dict(wish.args) | {"note": "changed"}))
            assert told.answer is not None
            assert told.answer["result"]["reason_code"] == "IDEMPOTENCY_KEY_REUSED"

        @precondition(lambda self: self.known)
        @rule(place=PLACES, gateway=st.sampled_from(NAMES))
        def repeat_under_another_key(self, place: int, gateway: str) -> None:
            if known := _choose(self.known, holds_its_action, place):
                told = world.send(gateway, replace(known.wish, key=f"key-{uuid4().hex}"))
                assert told.answer is not None
                assert (json.dumps(told.answer["result"], sort_keys=True), told.answer["replayed"]) == (known.result, True)

        @precondition(lambda self: self.known)
        @rule(place=PLACES)
        def resolve(self, place: int) -> None:
            if known := _choose(self.known, needs_a_person, place):
                happened = world.had_effect(known)
                assert world.resolve(known.decisions[-1], "happened" if happened else "did_not_happen") == 200
                known.state = "done" if happened else "open"

        @precondition(lambda self: self.steps >= CRASH_EVERY)
        @rule(name=st.sampled_from(NAMES))
        def crash(self, name: str) -> None:
            self.steps = 0
            world.restart(name)

    return Machine


def _choose(known: list[Known], fits: Callable[[Known], bool], place: int) -> Known | None:
    fitting = [each for each in known if fits(each)]
    return fitting[place % len(fitting)] if fitting else None


def _in_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Run in a thread that ends with the test process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - carried over to who waits
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run, daemon=True).start()
    return done


async def test_agents_an_operator_and_crashes_never_see_what_the_model_forbids(postgres: EmbeddedPostgres):
    async def batch(count: int, number: int) -> list[Violation]:
        async with fresh_database(postgres) as url, open_run(url, NAMES) as (fleet, client):
            machine = make_machine(World(fleet, client, asyncio.get_running_loop()))
            how = settings(
                max_examples=count,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
            )
            await _in_thread(lambda: run_state_machine_as_test(seed(number)(machine), settings=how))
            return await judge(fleet, "machine")

    await run_row("machine", batch)
