"""The port `Operations` in memory, and the real HTTP application in front of it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from aiohttp.test_utils import TestClient, TestServer
from uuid_utils.compat import uuid7

from gateway.api.server import create_app
from gateway.api.services import Services
from gateway.domain.catalogue import Replay
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.outcome import CallState
from gateway.domain.ports import (
    Approvals,
    BudgetRow,
    CallSummary,
    Erasure,
    KeyStore,
    Ledger,
    LogCounts,
    LogEvidence,
    LogPage,
    LogQuery,
    RevisionStore,
)
from gateway.domain.principal import Caller, Role
from gateway.enforcer import Enforcer
from gateway.impact import ImpactStudy
from gateway.policy.opa_bundle import BundleShelf
from gateway.revisions import Revisions
from gateway.runs.service import Runs
from gateway.settings import RunSettings
from gateway.stages.authenticate import Authenticate, Key
from gateway.tasks import TaskSet

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def a_call(**changes: Any) -> CallSummary:
    """A booking whose answer was lost."""
    booking = CallSummary(
        decision_id=uuid7(),
        state=CallState.IN_DOUBT,
        status=None,
        reason_code=None,
        agent="travel-assistant",
        subject="ada",
        run_id="run-1",
        workflow="trip_booking",
        tool="book_hotel",
        replay=Replay.NEVER,
        admitted_at=NOON,
        lease_until=NOON.replace(second=13),
        finished_at=None,
        attempts=1,
    )
    return replace(booking, **changes)


@dataclass(kw_only=True)
class FakeOperations:
    """Implements the ports `Operations` and, for its own resolution records, `DecisionLog`."""

    calls: dict[str, list[CallSummary]] = field(default_factory=dict[str, list[CallSummary]])
    """By tenant, oldest first."""
    budgets: dict[str, list[BudgetRow]] = field(default_factory=dict[str, list[BudgetRow]])
    """By tenant, in the order of their keys."""
    records: dict[UUID, dict[str, Any]] = field(default_factory=dict[UUID, dict[str, Any]])
    is_lost: bool = False

    async def list_calls(self, tenant: str, state: CallState, *, after: UUID | None, limit: int) -> Sequence[CallSummary]:
        """Calls in a state, oldest first."""
        self._check()
        found = [call for call in self.calls.get(tenant, []) if call.state is state and (after is None or call.decision_id > after)]
        return found[:limit]

    async def resolve_call(
        self, tenant: str, decision_id: UUID, *, happened: bool, evidence: str, by: str, record_id: UUID
    ) -> CallState | None:
        """End the doubt about a call."""
        self._check()
        for index, call in enumerate(self.calls.get(tenant, [])):
            if call.decision_id != decision_id:
                continue
            if call.state is CallState.IN_DOUBT:
                self.calls[tenant][index] = replace(call, state=CallState.SUCCEEDED if happened else CallState.OPEN)
                self.records[record_id] = {"tenant": tenant, "about": decision_id, "evidence": evidence, "by": by}
            return self.calls[tenant][index].state
        return None

    async def list_budgets(self, tenant: str, *, after: tuple[str, str, str] | None, limit: int) -> Sequence[BudgetRow]:
        """Budgets that were ever drawn on."""
        self._check()
        found = [row for row in self.budgets.get(tenant, []) if after is None or (row.name, row.scope, row.period) > after]
        return found[:limit]

    async def find(self, query: LogQuery) -> LogPage:
        """Nothing: nobody searches here."""
        raise NotImplementedError(query)

    async def count(self, query: LogQuery, fields: Sequence[str]) -> LogCounts:
        """Nothing: nobody counts here."""
        raise NotImplementedError(query, fields)

    async def read_size(self, tenant: str) -> int:
        """Nothing: nobody asks here."""
        raise NotImplementedError(tenant)

    async def get(self, tenant: str, decision_id: UUID) -> dict[str, Any] | None:
        """A resolution record."""
        self._check()
        found = self.records.get(decision_id)
        return found if found and found["tenant"] == tenant else None

    async def reveal(self, tenant: str, decision_id: UUID) -> dict[str, Any]:
        """Nothing: nobody reveals here."""
        raise NotImplementedError(tenant, decision_id)

    def _check(self) -> None:
        if self.is_lost:
            raise LedgerUnavailable("the test says so")


class _Door:
    """As much of an enforcer as these routes need: its first stage."""

    def __init__(self, callers: Sequence[Caller]) -> None:
        # The secret of each key is the name of its caller.
        self.authenticate = Authenticate([Key.of(caller.name, caller) for caller in callers], _no_key)


async def _no_key(_: bytes) -> None:
    return None


class _NothingInForce:
    """As much of what is in force as these routes need."""

    def current(self, _tenant: str) -> None:
        return None


CALLERS = (
    Caller(tenant="default", name="olga", roles=frozenset({Role.OPERATOR})),
    Caller(tenant="other", name="otto", roles=frozenset({Role.OPERATOR})),
    Caller(tenant="default", name="agnes", roles=frozenset({Role.AGENT, Role.AUDITOR, Role.AUTHOR, Role.APPROVER})),
)


@asynccontextmanager
async def serve_operations(fake: FakeOperations) -> AsyncGenerator[TestClient[Any, Any]]:
    """The application over `fake`, behind a real server."""

    async def is_ready() -> dict[str, bool]:
        return {}

    services = Services(
        enforcer=cast("Enforcer", _Door(CALLERS)),
        ledger=cast("Ledger", None),
        log=fake,
        evidence=cast("LogEvidence", None),
        erasure=cast("Erasure", None),
        log_key=lambda _: "",
        operations=fake,
        revisions=cast("Revisions", _NothingInForce()),
        revision_store=cast("RevisionStore", None),
        opa_bundles=BundleShelf(),
        impact=cast("ImpactStudy", None),
        approvals=cast("Approvals", None),
        runs=cast("Runs", None),
        run_settings=RunSettings(),
        keys=cast("KeyStore", None),
        tasks=TaskSet(),
        draining=asyncio.Event(),
        new_id=uuid7,
        now=lambda: NOON,
        readiness=is_ready,
    )
    async with TestClient(TestServer(create_app(services))) as client:
        yield client
