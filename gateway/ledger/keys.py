"""Keys that the gateway made, and what they open."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from gateway.domain.drafts import key_draft
from gateway.domain.keys import MAX_LIVE_KEYS, KeyGrant, StoredKey, digest_of, hint_of, make_key
from gateway.domain.ports import MadeKey
from gateway.domain.principal import Caller, Role
from gateway.ledger.database import Connection, Database, Rollback, Row
from gateway.ledger.log import Entry, append_records
from gateway.ledger.tenants import ensure_tenant


class PostgresKeys:
    """Implements the port `KeyStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = database.sql

    async def find(self, digest: bytes) -> Caller | None:
        """Who asks with the key of that digest; None where it opens nothing (unknown, expired, revoked)."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["find_key"], digest)
        return replace(_grant(row["tenant"], row).caller, key_id=row["key_id"]) if row else None

    async def create(self, grant: KeyGrant, *, key_id: UUID, record_id: UUID, ttl_s: float | None, by: str) -> MadeKey:
        """Make a key with its record. Only the answer holds it."""
        made = MadeKey(key_id=key_id, key=make_key(grant.roles))
        async with self._database.transaction() as connection:
            await ensure_tenant(connection, self._sql, grant.tenant)
            await self._insert(connection, grant, made, key_id, ttl_s, by)
            await self._record(connection, grant, record_id, key_id, "created", by)
        return made

    async def rotate(self, tenant: str, key_id: UUID, *, new_id: UUID, record_id: UUID, overlap_s: float, by: str) -> MadeKey | str:
        """Make a successor with the same grants; the old key ends after `overlap_s`. See the port for the answers that are texts."""
        try:
            async with self._database.transaction() as connection:
                row = await connection.fetchrow(self._sql["lock_key"], tenant, key_id)
                if row is None:
                    raise Rollback("UNKNOWN")
                if not row["is_live"]:
                    raise Rollback("NOT_LIVE")
                if await connection.fetchval(self._sql["count_live_keys"], tenant, row["family"]) >= MAX_LIVE_KEYS:
                    raise Rollback("TWO_LIVE_KEYS")
                grant = _grant(tenant, row)
                made = MadeKey(key_id=new_id, key=make_key(grant.roles))
                await self._insert(connection, grant, made, row["family"], row["ttl_s"], by)
                await connection.execute(self._sql["expire_key"], tenant, key_id, overlap_s)
                await self._record(connection, grant, record_id, new_id, "rotated", by, before=key_id)
        except Rollback as stop:
            return str(stop.found)
        return made

    async def revoke(self, tenant: str, key_id: UUID, *, record_id: UUID, by: str) -> bool | None:
        """End a key at once, with its record. False where it was revoked already; None where this tenant has no such key."""
        try:
            async with self._database.transaction() as connection:
                # The control row before the key: the order of all locks. Calls under way are decided anew, and refused.
                await connection.execute(self._sql["raise_epoch"], tenant)
                row = await connection.fetchrow(self._sql["lock_key"], tenant, key_id)
                if row is None:
                    raise Rollback(None)
                if not await connection.fetchval(self._sql["revoke_key"], tenant, key_id, by):
                    raise Rollback(False)
                await self._record(connection, _grant(tenant, row), record_id, key_id, "revoked", by)
        except Rollback as stop:
            return None if stop.found is None else False
        return True

    async def list_keys(self, tenant: str, *, after: UUID | None, limit: int) -> Sequence[StoredKey]:
        """Keys by id, which is by time; `after` is the last one of the page before."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["list_keys"], tenant, after, limit)
        return [StoredKey(**dict(row)) for row in rows]

    async def _insert(self, connection: Connection, grant: KeyGrant, made: MadeKey, family: UUID, ttl_s: float | None, by: str) -> None:
        await connection.execute(
            self._sql["insert_key"],
            grant.tenant,
            made.key_id,
            family,
            digest_of(made.key),
            hint_of(made.key),
            sorted(grant.roles),
            grant.agent,
            grant.person,
            grant.label,
            by,
            ttl_s,
        )

    async def _record(
        self, connection: Connection, grant: KeyGrant, record_id: UUID, key_id: UUID, action: str, by: str, before: UUID | None = None
    ) -> None:
        draft = key_draft(record_id, grant, key_id, action=action, by=by, before=before)
        await append_records(connection, self._sql, grant.tenant, [Entry(draft, None, {})])


def _grant(tenant: str, row: Row) -> KeyGrant:
    named: dict[str, Any] = {name: row[name] for name in ("agent", "person", "label")}
    return KeyGrant(tenant=tenant, roles=frozenset(map(Role, row["roles"])), **named)
