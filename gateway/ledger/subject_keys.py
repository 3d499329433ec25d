"""The subjects' data keys: made on first use, kept in memory for a minute, destroyed for erasure."""

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import orjson

from gateway.domain.decision import LedgerUnavailable
from gateway.domain.drafts import erasure_draft
from gateway.evidence.vault import DataKey, SealBroken, Vault
from gateway.ledger.database import Connection, Database
from gateway.ledger.log import Entry, append_records

KEPT_S = 60.0
"""How long a gateway works with a key without looking whether it still stands."""
MAX_KEPT = 10_000


class SubjectKeys:
    """The data keys of all tenants' subjects. A call without a subject uses the key of the subject ''."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._sql = database.sql
        self._vault = vault
        self._clock = clock
        self._by_subject: dict[tuple[str, str], tuple[float, DataKey]] = {}
        self._by_id: dict[tuple[str, bytes], tuple[float, DataKey | None]] = {}

    async def of(self, tenant: str, subjects: Iterable[str]) -> Mapping[str, DataKey]:
        """The keys of subjects, made where there is none. Raises LedgerUnavailable."""
        now, wanted = self._clock(), set(subjects)
        kept = {subject: self._by_subject.get((tenant, subject)) for subject in wanted}
        found = {subject: entry[1] for subject, entry in kept.items() if entry is not None and entry[0] > now}
        if missing := sorted(wanted - found.keys()):
            async with self._database.connection() as connection:
                for subject in missing:
                    found[subject] = await self._read_or_make(connection, tenant, subject)
            self._forget_some()
            self._by_subject |= {(tenant, subject): (now + KEPT_S, found[subject]) for subject in missing}
        return found

    async def open(self, tenant: str, key_id: bytes, sealed: bytes, belongs: bytes) -> bytes | None:
        """What was sealed; None where its key was destroyed, or where it does not open any more."""
        now = self._clock()
        kept = self._by_id.get((tenant, key_id))
        if kept is None or kept[0] <= now:
            async with self._database.connection() as connection:
                row = await connection.fetchrow(self._sql["get_subject_key"], tenant, key_id)
            key = self._unwrap(tenant, row["subject"], row["wrapped"]) if row and row["wrapped"] else None
            self._forget_some()
            kept = self._by_id[tenant, key_id] = now + KEPT_S, key
        try:
            return kept[1].open(sealed, belongs) if kept[1] is not None else None
        except SealBroken:
            return None

    async def open_result(self, tenant: str, result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """A result of the replay store with its data; without them, as expired, where their key was destroyed."""
        if result is None or "sealed" not in result:
            return result
        husk = {name: value for name, value in result.items() if name != "sealed"}
        data = await self._open_sealed(tenant, result["sealed"], b"result")
        return husk if data is None else {name: value for name, value in husk.items() if name != "data_omitted"} | {"data": data}

    async def open_invocation(self, tenant: str, invocation: bytes | None) -> dict[str, Any] | None:
        """What a resolver needs; None where there is nothing, or its key was destroyed."""
        if invocation is None:
            return None
        needed = orjson.loads(invocation)
        opened = await self._open_sealed(tenant, needed.pop("sealed"), b"invocation")
        return None if opened is None else needed | opened

    async def erase(self, tenant: str, subject: str, *, by: str, reason: str, record_id: UUID) -> int:
        """Destroy the keys of a subject, with a record; how many there were. Nothing that they sealed can be read again."""
        async with self._database.transaction() as connection:
            rows = await connection.fetch(self._sql["destroy_subject_keys"], tenant, subject)
            keys = [row["key_id"].hex() for row in rows]
            if keys:
                draft = erasure_draft(record_id, tenant, subject, by=by, reason=reason, keys=keys)
                await append_records(connection, self._sql, tenant, [Entry(draft, None, {})])
        self._by_subject.pop((tenant, subject), None)
        for row in rows:
            self._by_id.pop((tenant, row["key_id"]), None)
        return len(rows)

    async def _open_sealed(self, tenant: str, sealed: Mapping[str, str], belongs: bytes) -> Any:
        plain = await self.open(tenant, bytes.fromhex(sealed["key"]), base64.b64decode(sealed["box"]), belongs)
        return orjson.loads(plain) if plain is not None else None

    async def _read_or_make(self, connection: Connection, tenant: str, subject: str) -> DataKey:
        key, wrapped = self._vault.make_key(_owner(tenant, subject))
        await connection.execute(self._sql["insert_subject_key"], tenant, key.key_id, subject, wrapped)
        standing = await connection.fetchval(self._sql["standing_subject_key"], tenant, subject)
        return self._unwrap(tenant, subject, standing)

    def _unwrap(self, tenant: str, subject: str, wrapped: bytes) -> DataKey:
        try:
            return self._vault.unwrap(wrapped, _owner(tenant, subject))
        except SealBroken:
            raise LedgerUnavailable("a data key does not open under the master key") from None

    def _forget_some(self) -> None:
        for kept in (self._by_subject, self._by_id):
            while len(kept) >= MAX_KEPT:
                kept.pop(next(iter(kept)))  # pyright: ignore[reportArgumentType]


def _owner(tenant: str, subject: str) -> bytes:
    return orjson.dumps([tenant, subject])
