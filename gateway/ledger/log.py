"""The decision log: appending a record inside the transaction that decides, and reading records back."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from gateway.domain.ports import LogPage, LogQuery
from gateway.domain.record import RecordDraft
from gateway.ledger.database import Connection, Database, Statements

SEARCHABLE = ("kind", "agent", "subject", "run_id", "workflow", "tool", "effect", "reason_code", "status")
"""The record fields that a query can name, in the order of the statement's parameters."""


class Entry(NamedTuple):
    """A record to append: its draft, the decision that it belongs to, and facts that are known only in the commit."""

    draft: RecordDraft
    about: UUID | None
    late: Mapping[str, Any]


async def append_records(connection: Connection, sql: Statements, tenant: str, entries: Sequence[Entry]) -> None:
    """Give the entries the next positions and store them with their payloads. Takes the log head: the last lock."""
    if not entries:
        return
    head = await connection.fetchrow(sql["extend_log"], tenant, len(entries))
    if head is None:
        raise LookupError(f"tenant {tenant} has no log; activate a bundle first")
    records = [entry.draft.at(head["position"] + offset, head["at"], **entry.late) for offset, entry in enumerate(entries)]
    await connection.execute(
        sql["insert_records"],
        tenant,
        [entry.draft.decision_id for entry in entries],
        [record.document["position"] for record in records],
        [entry.draft.kind for entry in entries],
        [head["at"]] * len(entries),
        [entry.about for entry in entries],
        *([record.document[name] for record in records] for name in SEARCHABLE if name != "kind"),
        [record.body for record in records],
        [record.leaf for record in records],
    )
    payloads = [(entry.draft.decision_id, payload) for entry in entries for payload in entry.draft.payloads]
    if payloads:
        await connection.execute(
            sql["insert_payloads"],
            tenant,
            [decision_id for decision_id, _ in payloads],
            [payload.kind for _, payload in payloads],
            [orjson.dumps(payload.body) for _, payload in payloads],
        )


class PostgresLog:
    """Implements the port `DecisionLog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, query: LogQuery) -> LogPage:
        """One page, newest first; one more row is read to know whether there is a next page."""
        wanted = [[value for name, value in query.terms if name == field] or None for field in SEARCHABLE]
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                self._database.sql["find_records"],
                query.tenant,
                query.below_position,
                query.after,
                query.before,
                *wanted,
                query.limit + 1,
            )
        page = rows[: query.limit]
        return LogPage(
            items=tuple(orjson.loads(row["body"]) for row in page),
            next_position=page[-1]["position"] if len(rows) > query.limit else None,
        )

    async def get(self, tenant: str, decision_id: UUID) -> dict[str, Any] | None:
        """``{record, linked, payloads}`` of one record, or None."""
        sql = self._database.sql
        async with self._database.connection() as connection:
            body = await connection.fetchval(sql["get_record"], tenant, decision_id)
            if body is None:
                return None
            linked = await connection.fetch(sql["linked_records"], tenant, decision_id)
            payloads = await connection.fetch(sql["get_payloads"], tenant, decision_id)
        return {
            "record": orjson.loads(body),
            "linked": [orjson.loads(row["body"]) for row in linked],
            "payloads": {row["kind"]: orjson.loads(row["body"]) for row in payloads},
        }
