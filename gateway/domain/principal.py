"""Who is asking: the authenticated caller, and the principal whose authority a call has."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID


class Role(StrEnum):
    """What a credential may be used for; one credential may carry several."""

    AGENT = "agent"
    APPROVER = "approver"
    AUDITOR = "auditor"
    AUTHOR = "author"
    ENGINE = "engine"
    OPERATOR = "operator"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An authenticated credential: where it belongs, what it may do, and as whom."""

    tenant: str
    name: str
    """The agent's name for role agent, the person's for approvers, else the credential's own name."""
    roles: frozenset[Role]
    key_id: UUID | None = None
    """The key that the gateway made for it, where it came with one."""


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Agent and subject together, with the permissions that both have (intersection, never union)."""

    agent: str
    subject: str
    permissions: frozenset[str]
    attributes: Mapping[str, Any]
    """Attributes of the subject, as the bundle declares them."""
