"""Gateways freeze in the middle of a call, longer than its lease, and go on: what they still write or send changes nothing."""

import asyncio
import random
from collections.abc import Sequence

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.dump import ADMISSION_COMMITTED
from tests.faults.fleet import Fleet
from tests.faults.harness import RECOVERY_S, fresh_database, judge, open_run, run_row
from tests.faults.load import Client, Wish, new_wish
from tests.faults.points import MARKER
from tests.faults.run_index import Violation

TOOLS = ("write_keyed", "write_probe", "write_never", "look", "spend")
AT_ONCE = 5
FROZEN_S = 8.0
"""Longer than a lease of 5.5 s and a look of the reaper."""


async def test_a_thawed_gateway_neither_sends_nor_writes_what_its_lease_no_longer_covers(postgres: EmbeddedPostgres):
    async def batch(count: int, seed: int) -> list[Violation]:
        chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        async with fresh_database(postgres) as url, open_run(url, ("g1", "g2"), subjects=AT_ONCE) as (fleet, client):
            wishes: list[Wish] = []
            for start in range(0, count, AT_ONCE):
                numbers = range(start, min(start + AT_ONCE, count))
                wishes += await _freeze_and_thaw(fleet, client, [f"z{number}" for number in numbers], chance)
            await fleet.wait_until_quiet(RECOVERY_S)
            for wish in wishes:
                await client.send("g1", wish)
            return await judge(fleet, "zombies")

    await run_row("zombies", batch)


async def _freeze_and_thaw(fleet: Fleet, client: Client, names: Sequence[str], chance: random.Random) -> list[Wish]:
    for name in names:
        await asyncio.to_thread(fleet.start, name, STOP_AT=_draw_order(chance))
    wishes = [new_wish(chance.choice(TOOLS), chance.choice(("ok", "slow")), subject=f"s{1 + place:04d}") for place in range(len(names))]
    sending = [
        asyncio.create_task(client.send(name, wish, headers={MARKER: "1"}, patience_s=FROZEN_S * 4))
        for name, wish in zip(names, wishes, strict=True)
    ]
    await asyncio.gather(*map(fleet.wait_until_frozen, names))
    repeats = [asyncio.create_task(client.send("g2", wish)) for wish in wishes]
    await asyncio.sleep(FROZEN_S)
    for name in names:
        fleet.thaw(name)
    await asyncio.gather(*sending, *repeats)
    await asyncio.sleep(1.0)  # settlements may come after answers
    for name in names:
        await asyncio.to_thread(fleet.terminate, name)
    return wishes


def _draw_order(chance: random.Random) -> str:
    """After the admission, after the answer, or at any early statement or suspension (every call has more than ten)."""
    return chance.choice(
        (f"sql/{ADMISSION_COMMITTED}/:1", "send/after/:1", f"sql:{chance.randint(1, 10)}", f"await:{chance.randint(1, 10)}")
    )
