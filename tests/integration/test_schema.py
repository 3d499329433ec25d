"""The schema: keys that lead with tenant, a log that the application can only append to, migrations applied once."""

from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.ledger.embedded import EmbeddedPostgres
from gateway.ledger.migrate import current_version, read_migrations, upgrade
from tests.conftest import url_of


async def test_applies_each_migration_once(postgres: EmbeddedPostgres, database_url: str):
    owner = url_of(postgres.owner_url, urlsplit(database_url).path.strip("/"), "postgres")
    assert await upgrade(owner) == []
    assert await current_version(database_url) == read_migrations()[-1].version
    assert [migration.version for migration in read_migrations()] == list(range(1, len(read_migrations()) + 1))


async def test_every_key_leads_with_tenant(database_url: str):
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch(
        """
        SELECT conrelid::regclass::text AS "table", contype::text, (SELECT attname FROM pg_attribute
               WHERE attrelid = conrelid AND attnum = conkey[1]) AS first
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype IN ('p', 'u', 'f')
        UNION ALL
        SELECT indrelid::regclass::text, 'index', (SELECT attname FROM pg_attribute WHERE attrelid = indrelid AND attnum = indkey[0])
        FROM pg_index WHERE indisunique AND indrelid::regclass::text !~ '^pg_'
        """
    )
    await connection.close()
    assert len(rows) >= 20
    strays = {row["table"] for row in rows if row["first"] != "tenant"}
    assert strays == {"schema_migrations", "installation"}  # one row a database, no tenant's


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET body = ''",
        "DELETE FROM records",
        "TRUNCATE records",
        "UPDATE payloads SET body = ''",
        "DELETE FROM claims",
        "DROP TABLE records",
        "CREATE TABLE x (y int)",
    ],
)
async def test_the_application_can_only_append_to_the_log(database_url: str, statement: str):
    connection = await asyncpg.connect(database_url)
    try:
        with pytest.raises(asyncpg.PostgresError) as refused:
            await connection.execute(statement)
        assert refused.value.sqlstate == "42501"
    finally:
        await connection.close()


async def test_the_application_role_owns_nothing_and_is_no_superuser(database_url: str):
    connection = await asyncpg.connect(database_url)
    row = await connection.fetchrow("SELECT rolsuper, rolcreatedb, rolcreaterole, rolbypassrls FROM pg_roles WHERE rolname = current_user")
    owned = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)"
    )
    await connection.close()
    assert row is not None
    assert (list(row.values()), owned) == ([False] * 4, 0)
