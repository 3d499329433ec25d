"""A person's agreement to one exact call: its states, what its agent learns of it, what a person is shown, who may answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from gateway.domain.catalogue import Bundle
from gateway.domain.decision import ApprovalRequest, Dissent
from gateway.domain.principal import Caller, Role
from gateway.domain.reasons import ReasonCode

Verdict = Literal["approve", "deny"]

PEOPLE_NEEDED = {"self": 1, "other": 1, "two": 2}
"""Rule of a confirmation -> how many distinct persons must agree."""


class ApprovalState(StrEnum):
    """What became of a request to a person."""

    PENDING = "pending"
    GRANTED = "granted"
    CONSUMED = "consumed"
    """A call uses the grant; one that is proven to have had no effect gives it back."""
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody answered in time, or nobody used the yes in time."""


def state_now(state: str, *, is_expired: bool) -> ApprovalState:
    """The state of an approval with its expiry reckoned in; what was used or refused stays that."""
    found = ApprovalState(state)
    return ApprovalState.EXPIRED if is_expired and found in (ApprovalState.PENDING, ApprovalState.GRANTED) else found


@dataclass(frozen=True, kw_only=True)
class ApprovalFact:
    """An approval as its agent's calls meet it: by its id, or as the standing one of equal effect."""

    approval_id: str
    state: str
    effect_hash: bytes
    rule: str
    expires_at: datetime
    is_expired: bool
    summary: str
    agreed: int = 0
    """How many persons have said yes so far."""
    comment: str | None = None
    """What the person who said no wrote to the agent."""
    suggested_args: Mapping[str, Any] | None = None

    @property
    def now(self) -> ApprovalState:
        """The state with its expiry reckoned in."""
        return state_now(self.state, is_expired=self.is_expired)

    @property
    def request(self) -> ApprovalRequest:
        """What an answer says of it."""
        return ApprovalRequest(approval_id=self.approval_id, expires_at=self.expires_at, summary=self.summary)

    @property
    def dissent(self) -> Dissent:
        """The no that it is."""
        return Dissent(approval_id=self.approval_id, comment=self.comment, suggested_args=self.suggested_args)

    @property
    def waiting_code(self) -> ReasonCode:
        """Why a call that met it still waits."""
        return ReasonCode.SECOND_APPROVAL_REQUIRED if self.agreed else ReasonCode.APPROVAL_PENDING


@dataclass(frozen=True, kw_only=True)
class PersonsAnswer:
    """What one person said."""

    person: str
    answer: Verdict
    comment: str | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A request to a person about one exact call, with all answers to it."""

    approval_id: UUID
    """Also the id of the decision that first asked."""
    state: str
    is_expired: bool
    rule: str
    permission: str
    agent: str
    subject: str
    workflow: str
    run_id: str
    tool: str
    tool_digest: str
    revision: str
    """The bundle revision under which it was asked."""
    effect_hash: bytes
    summary: str
    request: Mapping[str, Any]
    """What the person is shown: see `gateway.domain.drafts.approval_document`."""
    requested_at: datetime
    expires_at: datetime
    consumed_by: UUID | None
    suggested_args: Mapping[str, Any] | None
    answers: tuple[PersonsAnswer, ...]
    """In order."""

    @property
    def now(self) -> ApprovalState:
        """The state with its expiry reckoned in."""
        return state_now(self.state, is_expired=self.is_expired)


class Objection(StrEnum):
    """Why somebody may not answer an approval."""

    AGENT_MAY_NOT_APPROVE = "AGENT_MAY_NOT_APPROVE"
    NOT_THE_SUBJECT = "NOT_THE_SUBJECT"
    SELF_APPROVAL = "SELF_APPROVAL"
    PERMISSION_MISSING = "PERMISSION_MISSING"


def find_objection(bundle: Bundle, caller: Caller, approval: Approval) -> Objection | None:
    """Why `caller` may not answer, under the rule that the call asked by and the permissions of the bundle in force."""
    if Role.AGENT in caller.roles:
        return Objection.AGENT_MAY_NOT_APPROVE
    if approval.rule == "self" and caller.name != approval.subject:
        return Objection.NOT_THE_SUBJECT
    if approval.rule != "self" and caller.name == approval.subject:
        return Objection.SELF_APPROVAL
    grants = [bundle.persons.get(caller.name), bundle.subjects.get(caller.name) if approval.rule == "self" else None]
    is_granted = any(approval.permission in grant.permissions for grant in grants if grant is not None)
    return None if is_granted else Objection.PERMISSION_MISSING
