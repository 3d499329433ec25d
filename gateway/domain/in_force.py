"""What is in force for a tenant: one bundle revision, and what operators took out of service. Both change under one epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from gateway.domain.catalogue import Bundle
from gateway.domain.reasons import ReasonCode

RestrictionKind = Literal["agent", "tool", "tenant"]
"""What a restriction stops: one agent (suspended), one tool (disabled), or everything (frozen)."""


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What operators took out of service."""

    suspended_agents: frozenset[str] = frozenset()
    disabled_tools: frozenset[str] = frozenset()
    is_frozen: bool = False
    revoked_keys: frozenset[UUID] = frozenset()
    """Keys that were revoked lately: calls that came in with one before are not admitted after."""

    @classmethod
    def of(cls, restrictions: Mapping[str, frozenset[str]]) -> "Controls":
        """From the names of each kind."""
        return cls(
            suspended_agents=restrictions.get("agent", frozenset()),
            disabled_tools=restrictions.get("tool", frozenset()),
            is_frozen=bool(restrictions.get("tenant")),
            revoked_keys=frozenset(map(UUID, restrictions.get("key", ()))),
        )

    def stopped(self, agent: str) -> ReasonCode | None:
        """Why an agent may do nothing at all, or None."""
        if self.is_frozen:
            return ReasonCode.TENANT_FROZEN
        return ReasonCode.AGENT_SUSPENDED if agent in self.suspended_agents else None

    def lets_pass(self, agent: str, tool: str) -> bool:
        """Whether a call of a tool by an agent may go out."""
        return self.stopped(agent) is None and tool not in self.disabled_tools


@dataclass(frozen=True, kw_only=True)
class InForce:
    """A tenant's revision in force with its controls. A call decided under another epoch is decided anew."""

    bundle: Bundle
    epoch: int
    """Raised by every activation and every change of the controls."""
    digest_key: bytes = field(repr=False)
    """The tenant's key for digests in records (32 bytes)."""
    controls: Controls = field(default_factory=Controls)
