"""Races: many duplicates at once, a budget that many want, a policy that allows one."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from uuid import uuid4

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.fleet import Fleet
from tests.faults.harness import fresh_database, judge, open_run, run_row
from tests.faults.load import new_wish, reason_code
from tests.faults.run_index import Violation

NAMES = ("g1", "g2")
DUPLICATES, SPENDERS, SENDERS = 100, 1_000, 8
AFFORDABLE = 50
DONE = frozenset({"ok", "outcome_unknown"})
"""What an admitted call may be told; on a busy machine the tool's answer may come after its time."""


async def _applied(fleet: Fleet, by: str) -> Mapping[str, int]:
    """Effects by action, or by another field of the decision's record."""
    evidence = await fleet.collect()
    records = {record.id: record.document for record in evidence.dump.records}
    applied = [effect for effect in evidence.effects if effect.event == "applied"]
    return Counter(effect.action if by == "action" else str(records[effect.call_id][by]) for effect in applied)


async def test_of_a_hundred_duplicates_one_has_an_effect_and_none_gets_an_error(postgres: EmbeddedPostgres):
    async def batch(count: int, seed: int) -> list[Violation]:
        chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        async with fresh_database(postgres) as url, open_run(url, NAMES) as (fleet, client):
            actions: list[str] = []
            for _ in range(count):
                wish = new_wish(chance.choice(("write_keyed", "write_probe", "write_never", "spend")), chance.choice(("ok", "slow")))
                actions.append(wish.args["action"])
                told = await asyncio.gather(*(client.send(NAMES[number % 2], wish, patience_s=60) for number in range(DUPLICATES)))
                assert {operation.http for operation in told} == {200}
                odd = Counter(reason_code(operation) for operation in told if operation.status not in DONE | {"in_progress"})
                assert not odd, f"{wish.tool}: {dict(odd)}"
            found = await judge(fleet, "duplicates")
            effects = await _applied(fleet, "action")
            assert found or effects == dict.fromkeys(actions, 1)
            return found

    await run_row("duplicates", batch)


async def test_a_thousand_times_ten_cents_against_five_dollars_succeeds_fifty_times(postgres: EmbeddedPostgres):
    async def batch(count: int, _: int) -> list[Violation]:
        async with fresh_database(postgres) as url, open_run(url, NAMES) as (fleet, client):
            runs = [f"run-{uuid4().hex[:12]}" for _ in range(count)]
            slots = asyncio.Semaphore(64)

            async def spend(run_id: str, number: int) -> str | None:
                async with slots:
                    gateways = NAMES if number % 2 else NAMES[::-1]
                    return (await client.insist(gateways, new_wish("spend", run_id=run_id))).status

            for run_id in runs:
                told = Counter(await asyncio.gather(*(spend(run_id, number) for number in range(SPENDERS))))
                assert sum(told[status] for status in DONE) == AFFORDABLE
                assert told["blocked"] == SPENDERS - AFFORDABLE
            found = await judge(fleet, "budgets")
            assert found or await _applied(fleet, "run_id") == dict.fromkeys(runs, AFFORDABLE)
            return found

    await run_row("budgets", batch)


async def test_of_eight_parallel_calls_under_only_if_none_was_sent_one_sends(postgres: EmbeddedPostgres):
    async def batch(count: int, _: int) -> list[Violation]:
        async with fresh_database(postgres) as url, open_run(url, NAMES, subjects=count) as (fleet, client):
            subjects = [f"s{number:04d}" for number in range(1, count + 1)]
            for subject in subjects:
                wishes = [new_wish("send", subject=subject) for _ in range(SENDERS)]
                told = await asyncio.gather(*(client.insist((NAMES[number % 2],), wish) for number, wish in enumerate(wishes)))
                statuses = Counter(str(operation.status) for operation in told)
                assert sum(statuses[status] for status in DONE) == 1
                assert statuses["suppressed"] == SENDERS - 1
            found = await judge(fleet, "policies")
            assert found or await _applied(fleet, "subject") == dict.fromkeys(subjects, 1)
            return found

    await run_row("policies", batch)
