"""The one place that knows the gateway's tables: whatever the fault tests need of the database's inside is read here.

A rewrite of the ledger changes this file and no other file of the fault tests.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import asyncpg
import orjson

from tests.faults.evidence import BudgetRow, Call, Dump, Grant, Hold, KeyClaim, Record

IS_ADMITTED = "SELECT EXISTS (SELECT FROM records WHERE decision_id = $1 AND kind = 'decision' AND effect = 'allow')"
"""Asked by the tool service on its own connection: only a committed decision is seen."""

LOG_HEAD = "after fetchrow UPDATE log_heads"
"""The point at which a gateway holds the log head: after the statement that extends it, before its COMMIT."""

DEADLOCK = "40P01"
"""The SQLSTATE that a gateway logs where the database broke a deadlock."""

CLAIMS_WANTED = "before fetch INSERT INTO claims"
BUDGETS_LOCKED = "after fetch INSERT INTO budgets"
"""In a call's request the first is its admission's, the second its settlement's."""

ADMISSION_COMMITTED = "after execute COMMIT"
"""The first such point of a call's request: its admission is committed, and nothing is sent yet."""

COMMIT_TEXT = re.compile(r"^\s*(COMMIT|END)\b", re.IGNORECASE)

LIVE_STATES = frozenset({"running", "pending_client"})
STATES_OF_STATUS: Mapping[str, str] = {"ok": "succeeded", "no_match": "succeeded", "failed": "failed"}


def state_of_record(record: Record) -> str | None:
    """The state that an outcome, a doubt or a resolution puts its call into; None for other records."""
    if record.about is None or record.kind not in {"outcome", "resolution"}:
        return None
    return _outcome(record).get("state")


def says_not_sent(record: Record) -> bool:
    """Whether a record says that its call was never sent."""
    return record.kind in {"outcome", "resolution"} and _outcome(record).get("phase") == "not_sent"


def has_evidence(record: Record) -> bool:
    """Whether a record that ends a doubt is a resolution with its method, or with the answer that came late."""
    outcome = _outcome(record)
    has_method = bool(outcome.get("method")) and bool(outcome.get("evidence") or outcome.get("phase"))
    return record.kind == "resolution" and (has_method or outcome.get("phase") == "answered" or says_not_sent(record))


def is_automatic(record: Record) -> bool:
    """Whether a gateway ended a doubt by acting on the tool again."""
    return record.kind == "resolution" and str(_outcome(record).get("method", "")).startswith(("sent again", "probe"))


def _outcome(record: Record) -> dict[str, Any]:
    outcome: Any = record.document.get("outcome")
    return outcome if isinstance(outcome, dict) else {}  # pyright: ignore[reportUnknownVariableType]


async def read_dump(url: str) -> Dump:
    """Everything that the checker looks at, in one snapshot."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        taken_at = await connection.fetchval("SELECT clock_timestamp()")
        rows = {table: await connection.fetch(f"SELECT * FROM {table}") for table in _TABLES}  # noqa: S608 - our own names
        await connection.execute("COMMIT")
        deadlocks = await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    finally:
        await connection.close()
    return Dump(
        taken_at=taken_at.timestamp(),
        calls=tuple(map(_call, rows["calls"])),
        holds=tuple(map(_hold, rows["reservations"])),
        budgets=tuple(BudgetRow(budget=_budget(row), reserved=row["reserved"], spent=row["spent"]) for row in rows["budgets"]),
        records=tuple(sorted(map(_record, rows["records"]), key=lambda record: record.position)),
        claims=tuple(
            KeyClaim(call_id=str(row["decision_id"]), expires_at=_seconds(row["expires_at"]))
            for row in rows["claims"]
            if row["kind"] == "transport"
        ),
        grants=tuple(
            Grant(id=str(row["approval_id"]), state=row["state"], consumed_by=str(row["consumed_by"]) if row["consumed_by"] else None)
            for row in rows["approvals"]
        ),
        log_size=sum(row["size"] for row in rows["log_heads"]),
        deadlocks=deadlocks,
    )


async def count_unsettled(url: str) -> dict[str, int]:
    """Calls that are not at their end, by replay-independent state."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        rows = await connection.fetch(
            "SELECT tool || ' ' || state AS what, count(*) AS many FROM calls WHERE state IN ('running', 'pending_client', 'in_doubt') GROUP BY 1"
        )
        return {row["what"]: row["many"] for row in rows}
    finally:
        await connection.close()


async def expire_transport_key(url: str, agent: str, key: str) -> None:
    """Let a key's time be over, as if its window had passed."""
    digest = hashlib.sha256(b"gateway/transport\0" + key.encode()).digest()
    connection = await asyncpg.connect(url, timeout=10)
    try:
        changed = await connection.execute(
            "UPDATE claims SET expires_at = clock_timestamp() WHERE kind = 'transport' AND scope = $1 AND digest = $2",
            agent,
            digest,
        )
    finally:
        await connection.close()
    if changed != "UPDATE 1":
        raise LookupError(f"the claim of the key was not found: {changed}")


async def replace_revision(url: str) -> None:
    """Put another revision in force, as an activation does at its commit."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute("UPDATE controls SET revision = 'sha256:another', epoch = epoch + 1")
    finally:
        await connection.close()


_TABLES = ("calls", "reservations", "budgets", "records", "claims", "approvals", "log_heads")


def _call(row: Mapping[str, Any]) -> Call:
    return Call(
        id=str(row["decision_id"]),
        agent=row["agent"],
        subject=row["subject"],
        run_id=row["run_id"],
        tool=row["tool"],
        state=row["state"],
        admitted_at=row["admitted_at"].timestamp(),
        lease_until=_seconds(row.get("lease_until")),
    )


def _hold(row: Mapping[str, Any]) -> Hold:
    return Hold(call_id=str(row["decision_id"]), budget=_budget(row), amount=row["amount"], state=row["state"], settled=row["settled"] or 0)


def _budget(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["name"], row["scope"], row["period"]


def _record(row: Mapping[str, Any]) -> Record:
    return Record(
        id=str(row["decision_id"]),
        position=row["position"],
        at=row["at"].timestamp(),
        kind=row["kind"],
        about=str(row["about"]) if row["about"] else None,
        body=row["body"],
        leaf=row["leaf"],
        document=orjson.loads(row["body"]),
    )


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at else None
