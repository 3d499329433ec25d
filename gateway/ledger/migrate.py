"""Schema migrations: numbered SQL files, applied in order by the owner role, each in its own transaction."""

from dataclasses import dataclass
from importlib import resources

import asyncpg

from gateway.ledger.database import ledger_errors

OWNER_ROLE = "gateway_owner"
APP_ROLE = "gateway_app"

# One lock for all who migrate this database; the number is arbitrary and only ours.
_MIGRATION_LOCK = 7_023_144_906

_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
_CREATE_ROLES = f"""
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{OWNER_ROLE}') THEN CREATE ROLE {OWNER_ROLE} NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{APP_ROLE}') THEN CREATE ROLE {APP_ROLE} LOGIN; END IF;
END $$
"""  # noqa: S608 - our own constants


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One numbered file of ``migrations/``."""

    version: int
    name: str
    sql: str


def read_migrations() -> list[Migration]:
    """All migrations that this release knows, in order."""
    folder = resources.files("gateway.ledger").joinpath("migrations")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return [Migration(version=int(entry.name[:4]), name=entry.name[5:-4], sql=entry.read_text()) for entry in files]


async def current_version(url: str, *, user: str | None = None) -> int:
    """The version of the database's schema; 0 where it has none. Raises LedgerUnavailable."""
    with ledger_errors():
        connection = await asyncpg.connect(url, user=user, timeout=5)
        try:
            if await connection.fetchval("SELECT to_regclass('schema_migrations')") is None:
                return 0
            return await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_migrations")
        finally:
            await connection.close()


async def upgrade(url: str) -> list[Migration]:
    """Apply what is missing as the owner role; answers what was applied. Raises LedgerUnavailable.

    `url` must be able to create roles the first time, and to become the owner role every time.
    """
    with ledger_errors():
        connection = await asyncpg.connect(url, timeout=5)
        try:
            await connection.execute("SELECT pg_advisory_lock($1)", _MIGRATION_LOCK)
            await connection.execute(_CREATE_ROLES)
            await connection.execute(f"GRANT {OWNER_ROLE} TO CURRENT_USER")
            await connection.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {OWNER_ROLE}")
            await connection.execute(f"SET ROLE {OWNER_ROLE}")
            await connection.execute(_CREATE_TABLE)
            done = {row["version"] for row in await connection.fetch("SELECT version FROM schema_migrations")}
            missing = [migration for migration in read_migrations() if migration.version not in done]
            for migration in missing:
                async with connection.transaction():
                    await connection.execute(migration.sql)
                    await connection.execute(
                        "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", migration.version, migration.name
                    )
            return missing
        finally:
            await connection.close()
