"""Case 37: clients that hang up at any moment, whether or not the server cancels their handlers, leave nothing half done."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiohttp import web

from tests.acceptance.conftest import OpenGateway, Watch, new_key
from tests.fakes import functions

COUNT, STAYING = 150, 10
"""Clients, and those of them that wait for their answer."""
BUSY_CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
)


@pytest.mark.parametrize("cancels", [False, True], ids=["handlers go on", "handlers are cancelled"])
async def test_nothing_is_left_half_done(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None], database_url: str, *, cancels: bool
):
    functions.ARRIVALS.clear()
    add_tool("order", "wait_a_moment", risk="write", replay="never", idempotency="caller", facts="none")

    def serve(app: web.Application) -> web.AppRunner:
        return web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=cancels, auto_decompress=False)

    watch = Watch()
    gateway = await open_with(copied_bundle, python_modules=["tests.fakes.functions"], prepare=watch.begin, serve=serve)
    chance = random.Random(37)  # noqa: S311 - reproducible, not secret

    async def ask(n: int) -> Any:
        return await gateway.call("order", {"n": n}, workflow="trip_booking", idempotency_key=new_key())

    async def ask_and_leave(n: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0, 0.5)):
                await ask(n)

    stayed, *_ = await asyncio.gather(asyncio.gather(*map(ask, range(STAYING))), *map(ask_and_leave, range(STAYING, COUNT)))
    assert {answer["result"]["status"] for answer in stayed} == {"ok"}
    await watch.until_rest(gateway)

    connection = await asyncpg.connect(database_url)
    try:
        async with asyncio.timeout(30):
            while await connection.fetchval(BUSY_CONNECTIONS):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        states = {row["state"]: row["many"] for row in await connection.fetch("SELECT state, count(*) AS many FROM calls GROUP BY 1")}
        held = await connection.fetchval("SELECT count(*) FROM reservations WHERE state = 'held'")
    finally:
        await connection.close()
    assert (states, held) == ({"succeeded": len(functions.ARRIVALS)}, 0)
    assert len({arrival["args"]["n"] for arrival in functions.ARRIVALS}) == len(functions.ARRIVALS)
    assert (await ask(COUNT))["result"]["status"] == "ok"
