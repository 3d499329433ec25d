"""Checking the log in the database: the stored rows, read in one snapshot, taken through the verifier.

Nothing of the writer's code is used: what the rows must be follows from the verifier and from the records themselves.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

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
                erased = _Erased(await connection.fetch(sql["audit_redactions"], tenant))
                erased.check_keys(await connection.fetch(sql["audit_keys"], tenant))
                cursor = await connection.cursor(sql["audit_records"], tenant)
                while rows := await cursor.fetch(_ROWS_AT_ONCE):
                    documents = [_check_record(log, row) for row in rows]
                    for document in documents:
                        erased.see(document)
                    named = [document for document in documents if any(link["rel"] == "payload" for link in document["links"])]
                    ids = [UUID(document["decision_id"]) for document in named]
                    stored = await connection.fetch(sql["audit_payloads"], tenant, ids) if ids else []
                    erased.check_payloads(named, stored)
                erased.demand_seen()
                if head != log.tree.size:
                    raise Broken(f"the head of the log says {head} records, there are {log.tree.size}", min(head, log.tree.size))
        finally:
            await connection.close()
    return log


class _Erased:
    """What records of redactions say was erased; everything else must be there as it was recorded."""

    def __init__(self, redactions: Sequence[Mapping[str, Any]]) -> None:
        self._documents = [orjson.loads(row["body"]) for row in redactions]
        self._keys = {key for document in self._documents for key in document["outcome"].get("keys", ())}
        self._standing: set[str] = set()
        self._seen = 0

    def check_keys(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The key table: each key is the one that records name, or destroyed with a record."""
        for row in rows:
            key_id = row["key_id"].hex()
            if row["wrapped"] is None and key_id not in self._keys:
                raise Broken(f"the data key {key_id[:16]} was destroyed without a record")
            if row["wrapped"] is not None:
                if hashlib.sha256(row["wrapped"]).digest() != row["key_id"]:
                    raise Broken(f"the data key {key_id[:16]} was changed")
                self._standing.add(key_id)

    def check_payloads(self, documents: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> None:
        """Payloads are the ones that their records name, under the keys that they name."""
        stored = {(row["decision_id"], row["kind"]): row for row in rows}
        for document in documents:
            for link in document["links"]:
                if link["rel"] != "payload":
                    continue
                row = stored.get((document["decision_id"], link["kind"]))
                if row is None:
                    raise Broken(f"the {link['kind']} payload is missing, and no record says that it was erased", document["position"])
                if f"sha256:{hashlib.sha256(row['body']).hexdigest()}" != link["digest"] or row["key_id"].hex() != link["key"]:
                    raise Broken(f"the {link['kind']} payload was changed", document["position"])
                if link["key"] not in self._standing and link["key"] not in self._keys:
                    raise Broken("the data key of a payload is missing, and no record says that it was destroyed", document["position"])

    def see(self, document: Mapping[str, Any]) -> None:
        """A record of the log, as it comes by."""
        if document["kind"] == "redaction":
            if self._seen >= len(self._documents) or self._documents[self._seen] != document:
                raise Broken("a record of an erasure is hidden from searches", document["position"])
            self._seen += 1

    def demand_seen(self) -> None:
        """Every redaction that was believed stands in the log."""
        if self._seen != len(self._documents):
            raise Broken("a record of an erasure does not stand in the log")


def _check_record(log: LogCheck, row: Mapping[str, Any]) -> dict[str, Any]:
    """One stored row. Searches go by the columns: one that says something else than its record would hide it."""
    if row["position"] != log.tree.size:
        raise Broken(f"the next record is at {row['position']}: records are missing", log.tree.size)
    log.record(row["body"], row["leaf"])
    document = orjson.loads(row["body"])
    if document["decision_id"] != row["decision_id"] or _text(row["at"]) != document["at"]:
        raise Broken("the columns of a record say something else than the record", row["position"])
    for name in _COLUMNS:
        if document[name] != row[name]:
            raise Broken(f"the column {name} says something else than the record", row["position"])
    belongs = next((link["decision_id"] for link in document["links"] if link["rel"] == "decision"), None)
    if belongs != row["about"]:
        raise Broken("the column about says something else than the record", row["position"])
    return document


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
