"""What rows and scenarios share: opening a fleet with a client, and the verdict at the end of a run."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import aiohttp
import asyncpg

from gateway.ledger.embedded import EmbeddedPostgres
from gateway.ledger.migrate import APP_ROLE
from tests.conftest import TEMPLATE, url_of
from tests.faults.checker import check
from tests.faults.fleet import Fleet, Launcher, open_fleet
from tests.faults.load import Client
from tests.faults.run_index import RunIndex, Violation
from tests.faults.sizes import KEPT, ROWS, Progress, make_folder

RECOVERY_S = 150.0
"""How long the gateways have for ending every lease and every doubt that they can end; a resolver that was lost holds one for a minute."""


@asynccontextmanager
async def open_run(database_url: str, gateways: Sequence[str] = ("g1", "g2"), **settings: Any) -> AsyncGenerator[tuple[Fleet, Client]]:
    """A fleet whose gateways listen, and a client of it; everything ends with the block."""
    environment = settings.pop("environment", {})
    with open_fleet(database_url, **settings) as fleet:
        await start_all(fleet, gateways, **environment)
        async with open_client(fleet) as client:
            yield fleet, client


@asynccontextmanager
async def fresh_fleet(server: EmbeddedPostgres, launcher: Launcher) -> AsyncGenerator[Fleet]:
    """A fleet on a new database, without gateways yet."""
    async with fresh_database(server) as url:
        with open_fleet(url, launcher=launcher) as fleet:
            yield fleet


@asynccontextmanager
async def open_client(fleet: Fleet) -> AsyncGenerator[Client]:
    """A client with connections enough for every race; none of them is kept for a second request."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(fleet, session)


async def start_all(fleet: Fleet, names: Sequence[str], **environment: str) -> None:
    """Start gateways side by side."""

    def start() -> None:
        for name in names:
            fleet.begin(name, **environment)
        for name in names:
            fleet.wait(name)

    await asyncio.to_thread(start)


async def judge(fleet: Fleet, row: str, *, is_at_rest: bool = True, wait_s: float = RECOVERY_S) -> list[Violation]:
    """Wait until everything is at rest, then check; the evidence of a violation is kept."""
    if is_at_rest:
        await fleet.wait_until_quiet(wait_s)
    evidence = await fleet.collect()
    run = RunIndex(history=evidence.history, effects=evidence.effects, dump=evidence.dump, setup=evidence.setup, is_at_rest=is_at_rest)
    found = await asyncio.to_thread(check, run)
    if found and not os.environ.get("PLANT_EXPECTED"):
        folder = make_folder(KEPT) / f"{row}-{time.strftime('%Y%m%d-%H%M%S')}"
        evidence.keep(folder)
        (folder / "violations").write_text("".join(f"{violation}\n" for violation in found))
    return found


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres) -> AsyncGenerator[str]:
    """The URL of a new database, as the application's role; dropped in the end."""
    name = f"faults_{uuid4().hex}"
    await _execute(server.owner_url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    # A deadlock is to show as one: by default it is looked for after a second, when the gateway's lock_timeout has hidden it.
    await _execute(server.owner_url, f"ALTER DATABASE {name} SET deadlock_timeout = '100ms'")
    try:
        yield url_of(server.owner_url, name, APP_ROLE)
    finally:
        await _execute(server.owner_url, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


Batch = Callable[[int, int], Awaitable[list[Violation]]]
"""Runs so many of a row's unit with a seed; answers what was violated."""


async def run_row(name: str, batch: Batch) -> None:
    """Batch after batch until the row is done or its time is over; stops at the first violation. Each batch's result is kept."""
    progress = Progress(ROWS[name])
    while count := progress.next_batch:
        await run_batch(progress, count, lambda: batch(count, int(os.environ.get("FAULTS_SEED", "1")) + progress.done))


async def run_batch(progress: Progress, count: int, batch: Callable[[], Awaitable[list[Violation]]]) -> None:
    """One batch, its result kept whatever comes of it."""
    began = time.monotonic()
    try:
        found = await batch()
    except BaseException as error:
        progress.add(0, time.monotonic() - began, fault=type(error).__name__)
        raise
    progress.add(0 if found else count, time.monotonic() - began, violations=len(found))
    assert found == [], summarize(found)


def socket_folder(database_url: str) -> str:
    """Where the embedded PostgreSQL listens."""
    return parse_qs(urlsplit(database_url).query)["host"][0]


def database_name(database_url: str) -> str:
    """The database of a URL."""
    return urlsplit(database_url).path.lstrip("/")


def summarize(found: Sequence[Violation], limit: int = 12) -> str:
    """Violations as a test's message."""
    more = [f"… and {len(found) - limit} more"] if len(found) > limit else []
    return "\n".join([*map(str, found[:limit]), *more])
