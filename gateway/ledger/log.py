"""The decision log: appending a record inside the transaction that decides, and reading records back."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from gateway.domain.ports import LogCounts, LogPage, LogQuery, StoredRecord
from gateway.domain.record import Record, RecordDraft
from gateway.domain.record_words import words_of
from gateway.evidence.vault import DataKey
from gateway.ledger.database import Connection, Database, Row, Statements
from gateway.ledger.search import LogWalker

COLUMNS = ("agent", "subject", "run_id", "workflow", "tool", "effect", "reason_code", "status", "stage", "risk")
"""The record fields that stand beside the body, for searches, in the order of the statement's parameters."""


class Entry(NamedTuple):
    """A record to append: its draft, the decision that it belongs to, and facts that are known only in the commit."""

    draft: RecordDraft
    about: UUID | None
    late: Mapping[str, Any]


class _Sealed(NamedTuple):
    """A payload as it is stored."""

    kind: str
    body: bytes
    key_id: bytes


async def append_records(
    connection: Connection, sql: Statements, tenant: str, entries: Sequence[Entry], keys: Mapping[str, DataKey] | None = None
) -> None:
    """Give the entries the next positions and store them with their payloads. Takes the log head: the last lock.

    `keys` are the data keys of the subjects whose records have payloads.
    """
    if not entries:
        return
    sealed = {entry.draft.decision_id: _seal_payloads(entry.draft, keys or {}) for entry in entries if entry.draft.payloads}
    head = await connection.fetchrow(sql["extend_log"], tenant, len(entries))
    if head is None:
        raise LookupError(f"tenant {tenant} has no log; activate a bundle first")
    records = [
        entry.draft.at(head["position"] + offset, head["at"], **entry.late, **_links(entry.draft, sealed.get(entry.draft.decision_id)))
        for offset, entry in enumerate(entries)
    ]
    rows = [_row(entry, record, head["at"]) for entry, record in zip(entries, records, strict=True)]
    await connection.execute(sql["insert_records"], tenant, rows)
    payloads = [(decision_id, payload) for decision_id, found in sealed.items() for payload in found]
    if payloads:
        await connection.execute(
            sql["insert_payloads"],
            tenant,
            [decision_id for decision_id, _ in payloads],
            [payload.kind for _, payload in payloads],
            [payload.body for _, payload in payloads],
            [payload.key_id for _, payload in payloads],
        )


def _row(entry: Entry, record: Record, at: datetime) -> tuple[Any, ...]:
    """A record as the type `new_record` has it: its searchable fields beside its bytes."""
    found = record.document
    searchable = (found[name] for name in COLUMNS)
    known = (entry.draft.decision_id, found["position"], entry.draft.kind, at, entry.about)
    return (*known, *searchable, words_of(found), record.body, record.leaf)


def belonging(decision_id: UUID, kind: str) -> bytes:
    """What a payload is sealed for: it opens at no other place."""
    return decision_id.bytes + kind.encode()


def _seal_payloads(draft: RecordDraft, keys: Mapping[str, DataKey]) -> list[_Sealed]:
    key = keys[draft.facts.get("subject") or ""]
    return [
        _Sealed(payload.kind, key.seal(orjson.dumps(payload.body), belonging(draft.decision_id, payload.kind)), key.key_id)
        for payload in draft.payloads
    ]


def _links(draft: RecordDraft, sealed: Sequence[_Sealed] | None) -> dict[str, Any]:
    """A record names what is kept beside it by its digest, so that a changed payload or key shows."""
    if not sealed:
        return {}
    named = [
        {"rel": "payload", "kind": payload.kind, "digest": f"sha256:{sha256(payload.body).hexdigest()}", "key": payload.key_id.hex()}
        for payload in sealed
    ]
    return {"links": [*draft.facts.get("links", ()), *named]}


async def read_records(connection: Connection, sql: Statements, tenant: str, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Records by their ids; what does not exist is missing."""
    rows = await connection.fetch(sql["get_records"], tenant, list(ids)) if ids else []
    return {row["decision_id"]: orjson.loads(row["body"]) for row in rows}


OpenSealed = Callable[[str, bytes, bytes, bytes], Awaitable[bytes | None]]
"""Opens what was sealed: tenant, key id, sealed bytes, what it belongs to; None where it cannot be read any more."""


class PostgresLog:
    """Implements the port `DecisionLog`."""

    def __init__(self, database: Database, open_sealed: OpenSealed) -> None:
        self._database = database
        self._open = open_sealed

    async def find(self, query: LogQuery) -> LogPage:
        """One page, stable while records arrive."""
        async with self._walker(query) as (walker, high):
            rows, bound = await walker.rows(query.low, high, query.limit)
        records = tuple(StoredRecord(position=row["position"], body=row["body"], leaf=row["leaf"]) for row in rows)
        return LogPage(records=records, bound=bound)

    async def count(self, query: LogQuery, fields: Sequence[str]) -> LogCounts:
        """How many records match, in all and by the values of some fields."""
        async with self._walker(query) as (walker, high):
            counted, bound = await walker.counts(query.low, high, fields)
        total: dict[str | None, int] = {}
        by_field: dict[str, dict[str, dict[str | None, int]]] = {name: {} for name in fields}
        for (name, value, effect), count in counted.items():
            into = by_field[name].setdefault(value, {}) if name else total
            into[effect] = count
        return LogCounts(total=total, by_field=by_field, is_complete=bound is None)

    async def read_size(self, tenant: str) -> int:
        """How many records there are."""
        async with self._database.connection() as connection:
            return await connection.fetchval(self._database.sql["read_log_size"], tenant) or 0

    @asynccontextmanager
    async def _walker(self, query: LogQuery) -> AsyncGenerator[tuple[LogWalker, int]]:
        # In a transaction, for the settings of one statement only.
        async with self._database.transaction() as connection:
            high = query.high
            if high is None:
                high = await connection.fetchval(self._database.sql["read_log_size"], query.tenant) or 0
            yield LogWalker(connection, query.tenant, query.search, newest_first=query.newest_first), high

    async def get(self, tenant: str, decision_id: UUID) -> dict[str, Any] | None:
        """``{record, linked, payloads}`` of one record, or None. Of payloads only their kinds are told."""
        sql = self._database.sql
        async with self._database.connection() as connection:
            body = await connection.fetchval(sql["get_record"], tenant, decision_id)
            if body is None:
                return None
            record = orjson.loads(body)
            abouts = [decision_id] + ([UUID(record["approval_id"])] if record["approval_id"] else [])
            linked = await connection.fetch(sql["linked_records"], tenant, abouts)
            payloads = await connection.fetch(sql["get_payloads"], tenant, decision_id)
        return {
            "record": record,
            "linked": [orjson.loads(row["body"]) for row in linked],
            "payloads": sorted(row["kind"] for row in payloads),
        }

    async def reveal(self, tenant: str, decision_id: UUID) -> dict[str, Any]:
        """The redacted payloads of a record and of those linked to it, by kind."""
        async with self._database.connection() as connection:
            payloads = await connection.fetch(self._database.sql["get_payloads"], tenant, decision_id)
        opened = [(row["kind"], await self._open_payload(tenant, row)) for row in payloads]
        return {kind: payload for kind, payload in opened if payload is not None}

    async def _open_payload(self, tenant: str, row: Row) -> dict[str, Any] | None:
        plain = await self._open(tenant, row["key_id"], row["body"], belonging(row["decision_id"], row["kind"]))
        return orjson.loads(plain) if plain is not None else None
