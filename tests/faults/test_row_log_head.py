"""A gateway freezes while it holds the log head, the last lock that every write needs; the others go on within three seconds."""

import asyncio
import time

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.dump import LOG_HEAD
from tests.faults.harness import fresh_database, judge, open_run, run_row
from tests.faults.load import Client, new_wish
from tests.faults.points import MARKER
from tests.faults.run_index import Violation

BOUND_S = 3.0
TOOLS = ("write_never", "write_keyed", "write_probe", "spend", "look")


async def test_others_go_on_within_three_seconds_of_a_gateway_frozen_with_the_log_head(postgres: EmbeddedPostgres):
    async def batch(count: int, _: int) -> list[Violation]:
        async with fresh_database(postgres) as url, open_run(url, ("g2", "g3")) as (fleet, client):
            for number in range(count):
                await asyncio.to_thread(fleet.start, "g1", STOP_AT=f"sql/{LOG_HEAD}/:1")
                frozen = asyncio.create_task(client.send("g1", new_wish(TOOLS[number % len(TOOLS)]), headers={MARKER: "1"}, patience_s=20))
                await fleet.wait_until_frozen("g1")
                fleet.recorder.note("frozen with the log head", "g1")
                waits = await asyncio.gather(*(_seconds_until_served(client, name) for name in ("g2", "g3")))
                assert max(waits) <= BOUND_S
                fleet.thaw("g1")
                await frozen
                await asyncio.to_thread(fleet.kill, "g1")
            return await judge(fleet, "log_head")

    await run_row("log_head", batch)


async def _seconds_until_served(client: Client, gateway: str) -> float:
    """How long a new call, repeated with its key, takes to be done."""
    began, wish = time.monotonic(), new_wish("write_never", subject="bob")
    while (await client.send(gateway, wish)).status != "ok":
        if time.monotonic() - began > BOUND_S * 5:
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - began
