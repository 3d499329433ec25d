"""Checking the log in the database: the stored rows, read in one snapshot, taken through the verifier.

Nothing of the writer's code is used: what the rows must be follows from the verifier and from the records themselves.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
import orjson

from gateway.evidence.verify import Broken, Checkpoint, LogCheck
from gateway.ledger.database import ledger_errors, read_statements

_ROWS_AT_ONCE = 2_000
_COLUMNS = ("kind", "agent", "subject", "run_id", "workflow", "tool", "effect", "reason_code", "status")
"""Columns that must say what the record's field of the same name says."""


async def check_stored_log(url: str, user: str | None, tenant: str, checkpoints: Sequence[Checkpoint]) -> LogCheck:
    """Take all stored records of a tenant through the verifier. Raises Broken, LedgerUnavailable."""
    sql, log = read_statements(), LogCheck(checkpoints)
    with ledger_errors():
        connection = await asyncpg.connect(url, user=user, timeout=5)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                head = await connection.fetchval(sql["read_log_size"], tenant) or 0
                async for row in _rows(connection, sql["audit_records"], tenant):
                    if row["position"] != log.tree.size:
                        raise Broken(f"the next record is at {row['position']}: records are missing", log.tree.size)
                    log.record(row["body"], row["leaf"])
                    _compare_columns(row)
                if head != log.tree.size:
                    raise Broken(f"the head of the log says {head} records, there are {log.tree.size}", min(head, log.tree.size))
        finally:
            await connection.close()
    return log


async def _rows(connection: asyncpg.Connection, statement: str, tenant: str) -> AsyncIterator[Mapping[str, Any]]:
    cursor = await connection.cursor(statement, tenant)
    while rows := await cursor.fetch(_ROWS_AT_ONCE):
        for row in rows:
            yield row


def _compare_columns(row: Mapping[str, Any]) -> None:
    """Searches go by the columns: one that says something else than its record would hide it."""
    document = orjson.loads(row["body"])
    if document["decision_id"] != row["decision_id"] or _text(row["at"]) != document["at"]:
        raise Broken("the columns of a record say something else than the record", row["position"])
    for name in _COLUMNS:
        if document[name] != row[name]:
            raise Broken(f"the column {name} says something else than the record", row["position"])
    belongs = next((link["decision_id"] for link in document["links"] if link["rel"] == "decision"), None)
    if belongs != row["about"]:
        raise Broken("the column about says something else than the record", row["position"])


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
