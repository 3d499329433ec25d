"""The identities of a call: fingerprint, transport key, business key, effect hash, downstream key."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from gateway.domain.call import KnownCall
from gateway.domain.canonical import digest, integral_floats_as_integers
from gateway.domain.catalogue import BusinessKey
from gateway.domain.decision import Refusal
from gateway.domain.reasons import ReasonCode
from gateway.domain.references import MISSING, Sources

_VERSION = 1


def fingerprint(*, tool: str | None, subject: str | None, args: Any) -> bytes:
    """SHA-256 of what a caller sent: integral floats as integers, nothing filled in, no digest, context or ids (32 bytes).

    Raises ValueError for arguments that have no canonical form.
    """
    sent: Any = {} if args is None else integral_floats_as_integers(args)
    return digest("gateway/fingerprint", {"version": _VERSION, "tool": tool, "subject": subject, "args": sent})


def unusable_fingerprint(decision_id: UUID) -> bytes:
    """A fingerprint that equals no other, for arguments that have no canonical form (32 bytes)."""
    return hashlib.sha256(b"gateway/unusable\0" + decision_id.bytes).digest()


def transport_key(key: str) -> bytes:
    """SHA-256 of an idempotency key (32 bytes)."""
    return hashlib.sha256(b"gateway/transport\0" + key.encode()).digest()


def business_key(declared: BusinessKey, sources: Sources) -> bytes:
    """SHA-256 of the list of the key's values, absent ones as null (32 bytes)."""
    values = [sources.read(reference) for reference in declared.key]
    return digest("gateway/business", [None if value is MISSING else value for value in values])


def effect_hash(
    *,
    tenant: str,
    agent: str,
    subject: str,
    workflow: str,
    context: Mapping[str, Any],
    tool: str,
    tool_digest: str,
    args: Mapping[str, Any],
) -> bytes:
    """SHA-256 of what will actually run; approvals bind to it (32 bytes)."""
    return digest(
        "gateway/effect",
        {
            "tenant": tenant,
            "agent": agent,
            "subject": subject,
            "workflow": workflow,
            "context": integral_floats_as_integers(dict(context)),
            "tool": tool,
            "tool_digest": tool_digest,
            "args": dict(args),
        },
    )


def downstream_key(tenant: str, decision_id: UUID) -> str:
    """The key that a service gets to recognise repeated deliveries of one call: ``gw1_`` and 52 base32 characters."""
    raw = hashlib.sha256(b"gateway/downstream\0" + tenant.encode() + b"\0" + decision_id.bytes).digest()
    return "gw1_" + base64.b32encode(raw).decode().rstrip("=").lower()


def judge_known(known: KnownCall, *, agent: str, subject: str | None, fingerprint: bytes) -> Refusal | None:
    """Whether a call that holds an identity may be told to who asks again; a refusal reveals nothing of it.

    A transport key belongs to its agent and its input names the subject, so equal input is enough there.
    """
    if known.kind == "business" and (known.agent, known.subject) != (agent, subject):
        return Refusal(reason_code=ReasonCode.DUPLICATE_EFFECT)
    if known.fingerprint != fingerprint:
        return Refusal(reason_code=ReasonCode.IDEMPOTENCY_KEY_REUSED)
    if known.kind == "transport" and known.is_expired:
        return Refusal(reason_code=ReasonCode.IDEMPOTENCY_KEY_EXPIRED)
    return None
