"""The connection pool, the named statements, and the one place where driver errors become `LedgerUnavailable`."""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from typing import Any, Protocol, Self

import asyncpg

from gateway.domain.decision import LedgerUnavailable

ACQUIRE_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 6.0
SESSION_SETTINGS = {
    "application_name": "agent-tool-gateway",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "2s",
    "statement_timeout": "5s",
}

_NAMED = re.compile(r"^-- name: (\w+)\n((?:-- .*\n)*)", re.MULTILINE)

Row = Mapping[str, Any]
"""A row of a result, by column name."""


class Connection(Protocol):
    """What statements are run on: the part of asyncpg's connection that the ledger uses."""

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement for its effect."""
        ...

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """All rows."""
        ...

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        """The first row."""
        ...

    async def fetchval(self, query: str, *args: object) -> Any:
        """The first column of the first row."""
        ...


def read_statements() -> dict[str, str]:
    """The statements of ``queries.sql`` by name."""
    text = resources.files("gateway.ledger").joinpath("queries.sql").read_text()
    parts = _NAMED.split(text)[1:]
    return {parts[index]: parts[index + 2].strip() for index in range(0, len(parts), 3)}


@contextmanager
def ledger_errors() -> Generator[None]:
    """Turn whatever the driver, the network or a deadline raises into `LedgerUnavailable`."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        # Names only: a server message can quote values of the statement.
        sqlstate = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
        raise LedgerUnavailable(f"{type(error).__name__} {sqlstate or ''}".strip()) from error


class Database:
    """A pool of connections to one database, as the application's role."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.sql = read_statements()

    @classmethod
    async def connect(cls, url: str, *, user: str | None = None, size: int = 10) -> Self:
        """Open a pool of at most `size` connections. Raises LedgerUnavailable."""
        with ledger_errors():
            pool = await asyncpg.create_pool(
                url,
                user=user,
                min_size=1,
                max_size=size,
                timeout=ACQUIRE_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                server_settings=SESSION_SETTINGS,
            )
        return cls(pool)

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A pooled connection outside any transaction. Raises LedgerUnavailable."""
        with ledger_errors():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """A transaction that commits at the end of the block, or rolls back. Raises LedgerUnavailable.

        An error of COMMIT itself means that nobody knows: whoever sees LedgerUnavailable must send nothing.
        """
        with ledger_errors():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection, connection.transaction():
                yield connection

    async def is_ready(self) -> bool:
        """Whether the database answers and takes writes."""
        try:
            async with self.connection() as connection:
                return not await connection.fetchval("SELECT pg_is_in_recovery()")
        except LedgerUnavailable:
            return False

    async def close(self) -> None:
        """Close the pool; connections that do not end within two seconds are cut."""
        try:
            async with asyncio.timeout(2):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


class Rollback(Exception):
    """Leaves a transaction block without committing, carrying what the block found instead."""

    def __init__(self, found: object) -> None:
        super().__init__()
        self.found = found
