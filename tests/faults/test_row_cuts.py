"""The answer to a COMMIT, or the COMMIT itself, is dropped; the answer of a tool is cut after some bytes."""

import asyncio
from urllib.parse import urlsplit

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.fleet import open_fleet
from tests.faults.harness import RECOVERY_S, database_name, fresh_database, judge, open_client, run_row, socket_folder, start_all
from tests.faults.load import Load
from tests.faults.proxy import PostgresProxy, Proxy, ToolProxy
from tests.faults.run_index import Violation

NAMES = ("g1", "g2")
PATIENCE_S = 300.0


async def test_dropping_commits_and_their_answers_breaks_nothing(postgres: EmbeddedPostgres):
    async def batch(count: int, seed: int) -> list[Violation]:
        async with fresh_database(postgres) as url:
            with PostgresProxy(socket_folder(url), seed=seed) as proxy, open_fleet(url) as fleet:
                through = proxy.url(database_name(url), "gateway_app")
                for name in NAMES:
                    await asyncio.to_thread(fleet.start, name, database_url=through)
                fleet.recorder.note("COMMITs dropped", "postgresql")
                async with open_client(fleet) as client:
                    load = Load(client=client, fleet=fleet, seed=seed)
                    proxy.rate = 0.1
                    await _until(proxy, count, load)
                    proxy.rate = 0.0
                    await fleet.wait_until_quiet(RECOVERY_S)
                    await load.repeat_all(NAMES)
                    return await judge(fleet, "commits")

    await run_row("commits", batch)


async def test_cutting_answers_of_tools_breaks_nothing(postgres: EmbeddedPostgres):
    async def batch(count: int, seed: int) -> list[Violation]:
        async with fresh_database(postgres) as url:
            with open_fleet(url) as fleet:
                tool = urlsplit(fleet.tool_url)
                with ToolProxy(tool.hostname or "", tool.port or 0, seed=seed) as proxy:
                    fleet.route_tools_through(proxy.origin)
                    await start_all(fleet, NAMES)
                    fleet.recorder.note("answers cut", "tools")
                    async with open_client(fleet) as client:
                        load = Load(client=client, fleet=fleet, seed=seed)
                        proxy.rate = 0.15
                        await _until(proxy, count, load)
                        proxy.rate = 0.0
                        await fleet.wait_until_quiet(RECOVERY_S)
                        await load.repeat_all(NAMES)
                        return await judge(fleet, "cuts")

    await run_row("cuts", batch)


async def _until(proxy: Proxy, cuts: int, load: Load) -> None:
    """Load until the proxy has cut so often."""
    running = asyncio.create_task(load.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while proxy.cuts < cuts and not running.done():  # noqa: ASYNC110 - counted in another thread
                await asyncio.sleep(0.05)
    finally:
        load.stop()
        await running
