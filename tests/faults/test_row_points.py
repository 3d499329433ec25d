"""kill -9 at every point of a call: around each SQL statement, at each suspension of a task, around the send; per class."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.evidence import Operation
from tests.faults.fleet import Fleet
from tests.faults.harness import RECOVERY_S, fresh_database, judge, open_run, run_batch, run_row
from tests.faults.load import Client, Wish, new_wish
from tests.faults.points import KINDS, MARKER
from tests.faults.run_index import Violation
from tests.faults.sizes import ROWS, Progress, is_long

CLASSES = {"safe": "look", "keyed": "write_keyed", "probe": "write_probe", "never": "write_never", "client": "perform"}
AT_ONCE = 3
SPARE_POINTS = 3
"""A call may meet a few more points than the discovery run did, such as a look of the reaper; or a few less."""


@pytest.mark.skipif(is_long(), reason="the long row draws its points: see below")
@pytest.mark.parametrize("name", CLASSES)
async def test_dying_at_each_point_of_a_call_breaks_nothing(name: str, postgres: EmbeddedPostgres):
    tool = CLASSES[name]
    async with fresh_database(postgres) as url, open_run(url, ("g1",), subjects=AT_ONCE) as (fleet, client):
        points = await discover(fleet, client, tool)
        orders = [(tool, kind, number) for kind in KINDS for number in range(1, points[kind] + SPARE_POINTS + 1)]
        await run_batch(Progress(ROWS["points"]), len(orders), lambda: die_at_each(fleet, client, orders, f"points-{name}"))


@pytest.mark.skipif(not is_long() and not ROWS["points"].wanted, reason="CI dies at each point once: see above")
async def test_dying_at_points_drawn_at_random_breaks_nothing(postgres: EmbeddedPostgres):
    async def batch(count: int, seed: int) -> list[Violation]:
        chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        async with fresh_database(postgres) as url, open_run(url, ("g1",), subjects=AT_ONCE) as (fleet, client):
            points = {tool: await discover(fleet, client, tool) for tool in CLASSES.values()}
            orders: list[tuple[str, str, int]] = []
            for _ in range(count):
                tool = chance.choice(list(points))
                kind = chance.choice([kind for kind in KINDS if points[tool][kind]])
                orders.append((tool, kind, chance.randint(1, points[tool][kind])))
            return await die_at_each(fleet, client, orders, "points")

    await run_row("points", batch)


async def discover(fleet: Fleet, client: Client, tool: str) -> Counter[str]:
    """How many points of each kind a call of `tool` meets."""
    log = fleet.folder / f"points-{tool}"
    await asyncio.to_thread(fleet.start, "d1", POINTS_LOG=str(log))
    warm_up = await _make(client, "d1", new_wish(tool), {})
    operation = await _make(client, "d1", new_wish(tool), {MARKER: "1"})
    assert (warm_up.status, operation.status) == ("ok", "ok")
    await asyncio.to_thread(fleet.terminate, "d1")
    return _count(log)


async def _make(client: Client, gateway: str, wish: Wish, headers: Mapping[str, str]) -> Operation:
    """One call to its end: where it is handed out, the client does it and says so to the same gateway."""
    operation = await client.send(gateway, wish, headers=headers)
    if operation.status != "pending_client" or operation.decision_id is None:
        return operation
    await client.perform(wish, operation.decision_id)
    return await client.report(gateway, wish, operation.decision_id, headers=headers)


def _count(log: Path) -> Counter[str]:
    return Counter(line.split(":")[0] for line in log.read_text().splitlines())


async def die_at_each(fleet: Fleet, client: Client, orders: Sequence[tuple[str, str, int]], row: str) -> list[Violation]:
    """For each order a gateway that dies there in the middle of a call; another one is asked at once, and again when all is over."""
    queue = list(enumerate(orders))[::-1]
    wishes: list[Wish] = []
    repeats: list[asyncio.Task[object]] = []
    died = 0

    async def work(place: int) -> None:
        nonlocal died
        while queue:
            number, (tool, kind, point) = queue.pop()
            name = f"k{number}"
            await asyncio.to_thread(fleet.start, name, KILL_AT=f"{kind}:{point}")
            wish = new_wish(tool, subject=f"s{1 + place:04d}")
            wishes.append(wish)
            operation = await _make(client, name, wish, {MARKER: "1"})
            died += operation.type != "ok"
            await asyncio.to_thread(fleet.forget, name)
            repeats.append(asyncio.create_task(client.send("g1", wish)))

    await asyncio.gather(*map(work, range(AT_ONCE)))
    await asyncio.gather(*repeats)
    assert died >= len(orders) // 2, f"only {died} of {len(orders)} gateways died"
    await fleet.wait_until_quiet(RECOVERY_S)
    for wish in wishes:
        await client.send("g1", wish)
    return await judge(fleet, row)
