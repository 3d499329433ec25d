"""Checking the log in the database: the stored rows, read in one snapshot, taken through the verifier.

Nothing of the writer's code is used: what the rows must be follows from the verifier and from the records themselves.
"""

import hashlib
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from gateway.evidence.verify import Broken, Checkpoint, LogCheck
from gateway.ledger.database import Row, ledger_errors, read_statements

_ROWS_AT_ONCE = 2_000
_COLUMNS = ("kind", "agent", "subject", "run_id", "workflow", "tool", "effect", "reason_code", "status")
"""Columns that must say what the record's field of the same name says."""
_ABOUT_A_DECISION = {"outcome", "resolution", "replay"}
_NEEDED = {*_COLUMNS, "approval_id", "decision_id", "at", "links", "outcome"}


async def check_stored_log(url: str, user: str | None, tenant: str, checkpoints: Sequence[Checkpoint]) -> LogCheck:
    """Take all stored records of a tenant through the verifier. Raises Broken, LedgerUnavailable."""
    sql = read_statements()
    with ledger_errors():
        connection = await asyncpg.connect(url, user=user, timeout=5)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                head = await connection.fetchval(sql["read_log_size"], tenant) or 0
                redactions = await connection.fetch(sql["audit_redactions"], tenant)
                check = StoredLogCheck(checkpoints, redactions, await connection.fetch(sql["audit_keys"], tenant))
                cursor = await connection.cursor(sql["audit_records"], tenant)
                while rows := await cursor.fetch(_ROWS_AT_ONCE):
                    ids = [UUID(row["decision_id"]) for row in rows if b'"rel":"payload"' in row["body"]]
                    check.take(rows, await connection.fetch(sql["audit_payloads"], tenant, ids) if ids else [])
                return check.finish(head)
        finally:
            await connection.close()


class StoredLogCheck:
    """Stored rows of one log, taken in order. What records of redactions say was erased may be gone; everything else may not."""

    def __init__(self, checkpoints: Sequence[Checkpoint], redactions: Sequence[Row], keys: Sequence[Row]) -> None:
        self._log = LogCheck(checkpoints)
        self._redactions = [_read(row) for row in redactions]
        self._erased: set[str] = {
            key for document in self._redactions if document["outcome"] for key in document["outcome"].get("keys", ())
        }
        self._seen = 0
        self._standing = {_check_key(row, self._erased) for row in keys}

    def take(self, rows: Sequence[Row], payloads: Sequence[Row]) -> None:
        """The next records, with the payloads of (at least) these. Raises Broken."""
        stored = {(row["decision_id"], row["kind"]): row for row in payloads}
        for row in rows:
            document = _check_record(self._log, row)
            self._see(document)
            for link in document["links"]:
                if link["rel"] == "payload":
                    self._check_payload(document, link, stored.get((document["decision_id"], link["kind"])))

    def finish(self, head: int) -> LogCheck:
        """The log that the rows made, which the head of the log must fit. Raises Broken."""
        if self._seen != len(self._redactions):
            raise Broken("a record of an erasure does not stand in the log")
        if head != self._log.tree.size:
            raise Broken(f"the head of the log says {head} records, there are {self._log.tree.size}", min(head, self._log.tree.size))
        return self._log

    def _see(self, document: Mapping[str, Any]) -> None:
        # What was believed before the log was read must stand in it.
        if document["kind"] == "redaction":
            if self._seen >= len(self._redactions) or self._redactions[self._seen] != document:
                raise Broken("a record of an erasure is hidden from searches", document["position"])
            self._seen += 1

    def _check_payload(self, document: Mapping[str, Any], link: Mapping[str, Any], row: Row | None) -> None:
        if row is None:
            raise Broken(f"the {link['kind']} payload is missing, and no record says that it was erased", document["position"])
        if f"sha256:{hashlib.sha256(row['body']).hexdigest()}" != link["digest"] or row["key_id"].hex() != link["key"]:
            raise Broken(f"the {link['kind']} payload was changed", document["position"])
        if link["key"] not in self._standing and link["key"] not in self._erased:
            raise Broken("the data key of a payload is missing, and no record says that it was destroyed", document["position"])


def _check_key(row: Row, erased: Container[str]) -> str | None:
    """The id of a data key that stands; None for one that was destroyed with a record. Raises Broken."""
    key_id = row["key_id"].hex()
    if row["wrapped"] is None:
        if key_id not in erased:
            raise Broken(f"the data key {key_id[:16]} was destroyed without a record")
        return None
    if hashlib.sha256(row["wrapped"]).digest() != row["key_id"]:
        raise Broken(f"the data key {key_id[:16]} was changed")
    return key_id


def _check_record(log: LogCheck, row: Row) -> dict[str, Any]:
    """One stored row. Searches go by the columns: one that says something else than its record would hide it."""
    if row["position"] != log.tree.size:
        raise Broken(f"the next record is at {row['position']}: records are missing", log.tree.size)
    log.record(row["body"], row["leaf"])
    document = _read(row)
    if document["decision_id"] != row["decision_id"] or _text(row["at"]) != document["at"]:
        raise Broken("the columns of a record say something else than the record", row["position"])
    for name in _COLUMNS:
        if document[name] != row[name]:
            raise Broken(f"the column {name} says something else than the record", row["position"])
    belongs = {link.get("decision_id") for link in document["links"] if link["rel"] != "payload"} | {document["approval_id"]}
    is_hidden = row["about"] is None and document["kind"] in _ABOUT_A_DECISION
    if is_hidden or (row["about"] is not None and row["about"] not in belongs):
        raise Broken("the column about says something else than the record", row["position"])
    return document


def _read(row: Row) -> dict[str, Any]:
    try:
        document: dict[str, Any] = orjson.loads(row["body"])
    except ValueError:
        raise Broken("this is no record", row["position"]) from None
    if not document.keys() >= _NEEDED:
        raise Broken("this is no whole record", row["position"])
    return document


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
