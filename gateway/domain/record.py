"""One entry of the decision log: the same fields for every kind of record, absent facts are null, never missing."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

SCHEMA_VERSION = "1.0"

KINDS = (
    "decision",
    "outcome",
    "replay",
    "activation",
    "resolution",
    "control",
    "redaction",
    "approval",
    "cancellation",
    "export",
    "reveal",
    "key",
)
"""What a record can be about."""
FIELDS = (
    "decision_id", "position", "kind", "at", "schema_version", "tenant", "agent", "subject", "run_id", "round", "call_id",
    "workflow", "tool", "tool_digest", "risk", "argument_keys", "arguments_digest", "effect", "reason_code", "stage",
    "policy", "rules", "obligations", "revision", "engine", "stages", "status", "outcome", "budgets", "approval_id",
    "key_digest", "links", "trace_id",
)  # fmt: skip
"""Every record has exactly these fields."""

_EMPTY: dict[str, Any] = dict.fromkeys(FIELDS) | {"schema_version": SCHEMA_VERSION}
for _name in ("rules", "obligations", "stages", "budgets", "links", "argument_keys"):
    _EMPTY[_name] = []


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What is kept beside a record for auditors, already redacted."""

    kind: str
    """``arguments`` (with the policy input) or ``result``."""
    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecordDraft:
    """A record before its commit: everything but its position and time, which the ledger assigns."""

    decision_id: UUID
    kind: str
    tenant: str
    facts: Mapping[str, Any]
    """Values for `FIELDS`; what is not named is null or empty."""
    payloads: tuple[Payload, ...] = field(default=())

    def at(self, position: int, at: datetime, **late: Any) -> "Record":
        """The record as it is stored: at its position, with its exact bytes. `late` adds facts known only in the commit."""
        document: dict[str, Any] = (
            _EMPTY
            | dict(self.facts)
            | late
            | {
                "decision_id": str(self.decision_id),
                "kind": self.kind,
                "tenant": self.tenant,
                "position": position,
                "at": at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            }
        )
        if len(document) != len(FIELDS):
            msg = f"not a field of records: {sorted(document.keys() - set(FIELDS))}"
            raise ValueError(msg)
        body = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return Record(document=document, body=body, leaf=leaf_hash(body))


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record with its position, its exact stored bytes and its leaf hash."""

    document: dict[str, Any]
    body: bytes
    leaf: bytes


def leaf_hash(body: bytes) -> bytes:
    """The RFC 6962 leaf hash of a record's stored bytes: SHA-256(0x00 || body)."""
    return hashlib.sha256(b"\x00" + body).digest()


def keyed_digest(key: bytes, value: bytes) -> str:
    """HMAC-SHA256 under the tenant's key, as ``hmac-sha256:<hex>``: equal values show as equal, short ones cannot be guessed."""
    return "hmac-sha256:" + hmac.digest(key, value, "sha256").hex()
