"""The decision log: appending a record inside the transaction that decides, and reading records back."""

from typing import Any
from uuid import UUID

import orjson

from gateway.domain.ports import LogPage, LogQuery
from gateway.domain.record import Record, RecordDraft
from gateway.ledger.database import Connection, Database

SEARCHABLE = ("kind", "agent", "subject", "run_id", "workflow", "tool", "effect", "reason_code", "status")
"""The record fields that a query can name, in the order of the statement's parameters."""


async def append_record(connection: Connection, sql: dict[str, str], draft: RecordDraft, about: UUID | None, **late: Any) -> Record:
    """Give `draft` the next position and store it with its payloads. Takes the log head: the last lock of a transaction.

    `about` is the decision that an outcome or replay belongs to; `late` adds facts that are known only now.
    """
    head = await connection.fetchrow(sql["extend_log"], draft.tenant)
    if head is None:
        raise LookupError(f"tenant {draft.tenant} has no log; activate a bundle first")
    record = draft.at(head["position"], head["at"], **late)
    found = record.document
    await connection.execute(
        sql["insert_record"],
        draft.tenant,
        draft.decision_id,
        head["position"],
        draft.kind,
        head["at"],
        about,
        *(found[name] for name in SEARCHABLE if name != "kind"),
        record.body,
        record.leaf,
    )
    for payload in draft.payloads:
        await connection.execute(sql["insert_payload"], draft.tenant, draft.decision_id, payload.kind, orjson.dumps(payload.body))
    return record


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
