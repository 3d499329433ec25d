"""kill -9 of one of three gateways under load."""

import asyncio
import random

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.harness import RECOVERY_S, fresh_database, judge, open_run, run_row
from tests.faults.load import Load
from tests.faults.run_index import Violation

NAMES = ("g1", "g2", "g3")


async def test_killing_one_of_three_gateways_under_load_breaks_nothing(postgres: EmbeddedPostgres):
    async def batch(count: int, seed: int) -> list[Violation]:
        chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        async with fresh_database(postgres) as url, open_run(url, NAMES) as (fleet, client):
            load = Load(client=client, fleet=fleet, seed=seed)
            running = asyncio.create_task(load.run())
            for _ in range(count):
                await asyncio.sleep(chance.uniform(0.05, 0.6))
                victim = chance.choice(NAMES)
                await asyncio.to_thread(fleet.kill, victim)
                await asyncio.to_thread(fleet.start, victim)
            load.stop()
            await running
            await fleet.wait_until_quiet(RECOVERY_S)
            await load.repeat_all(NAMES)
            return await judge(fleet, "kills")

    await run_row("kills", batch)
