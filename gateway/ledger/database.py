"""The connection pool, the named statements, and the one place where driver errors become `LedgerUnavailable`."""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import resources
from typing import Any, Protocol, Self

import asyncpg
from asyncpg.transaction import Transaction

from gateway.domain.decision import LedgerUnavailable

ACQUIRE_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 6.0
SESSION_SETTINGS = {
    "application_name": "agent-tool-gateway",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "2s",
    "statement_timeout": "5s",
    # Every statement is prepared once and looks at single keys: planning it anew for each call costs more than it runs.
    "plan_cache_mode": "force_generic_plan",
    # A plan is kept from when the tables were small: it must not walk through them when they have grown.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
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


Statements = Mapping[str, str]
"""The statements of ``queries.sql`` by name."""


def read_statements() -> Statements:
    """The statements of ``queries.sql`` by name."""
    text = resources.files("gateway.ledger").joinpath("queries.sql").read_text()
    parts = _NAMED.split(text)[1:]
    return {parts[index]: parts[index + 2].strip() for index in range(0, len(parts), 3)}


class CommitUnknown(LedgerUnavailable):
    """The answer to a COMMIT was lost: it may or may not have happened."""


class StatementFailed(Exception):
    """The server refused a statement for what it contains: a defect of the write, not of the connection."""


# Data exceptions, integrity violations, syntax and access errors (PostgreSQL, appendix A).
_FAULTS_OF_THE_WRITE = ("22", "23", "42")


@contextmanager
def ledger_errors() -> Generator[None]:
    """Turn whatever the driver, the network or a deadline raises into `LedgerUnavailable` or `StatementFailed`."""
    try:
        yield
    except asyncpg.PostgresError as error:
        # Names only: a server message can quote values of the statement.
        sqlstate = error.sqlstate or ""
        detail = f"{type(error).__name__} {sqlstate}".strip()
        if sqlstate.startswith(_FAULTS_OF_THE_WRITE):
            raise StatementFailed(detail) from error
        raise LedgerUnavailable(detail) from error
    except (asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise LedgerUnavailable(type(error).__name__) from error


class Database:
    """A pool of connections to one database, as the application's role."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.sql: Statements = read_statements()

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
                reset=_keep_session,
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
        """A transaction that commits at the end of the block, or rolls back.

        Raises LedgerUnavailable, CommitUnknown where COMMIT itself failed, StatementFailed for a write's own defect.
        """
        with ledger_errors():
            async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                transaction = connection.transaction()
                try:
                    await transaction.start()
                except BaseException:
                    connection.terminate()  # nobody knows whether it began: nobody works on in it
                    raise
                try:
                    yield connection
                except BaseException:
                    await _roll_back(transaction)
                    raise
                try:
                    await transaction.commit()
                except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                    raise CommitUnknown(f"COMMIT: {type(error).__name__}") from error

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


async def _keep_session(_: object) -> None:
    """Nothing to undo between uses: no session state is ever set, and every transaction ends in its block."""


async def _roll_back(transaction: Transaction) -> None:
    # Where the connection is gone the transaction is too; the first error is the one to tell.
    with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        await transaction.rollback()


class Rollback(Exception):
    """Leaves a transaction block without committing, carrying what the block found instead."""

    def __init__(self, found: object) -> None:
        super().__init__()
        self.found = found
