"""Dry runs over stated facts instead of a ledger: how the cases of a bundle are decided before it is activated."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from uuid import UUID

from gateway.bundle import Evaluate
from gateway.domain.approvals import ApprovalFact
from gateway.domain.call import Dispatch, Facts, KnownCall, Proposed
from gateway.domain.catalogue import Bundle, ToolDeclaration
from gateway.domain.decision import Refusal
from gateway.domain.ports import Invocation, PolicyEngine
from gateway.enforcer import Enforcer, Evaluation, build_path
from gateway.tasks import TaskSet


class StatedFacts:
    """A ledger that knows what it is told and writes nothing; enough for a dry run."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def recall(self, *_: Any) -> KnownCall | None:
        """Nothing was seen before."""

    async def read_facts(self, *_: Any) -> Facts | KnownCall | Refusal:
        """The stated facts."""
        return self._facts

    async def find_standing_approval(self, *_: Any) -> ApprovalFact | None:
        """Nobody was asked before."""

    async def admit(self, *_: Any) -> Refusal | KnownCall | None:
        """Budgets are untouched: whatever fits an empty one is admitted."""

    def __getattr__(self, name: str) -> NoReturn:
        raise TypeError(f"a rehearsal never gets as far as {name}")


class NoExecutor:
    """An executor that a dry run never reaches."""

    def check(self, tool: ToolDeclaration, tenant: str) -> str | None:  # noqa: ARG002 - the port
        """Nothing runs here."""
        return "a rehearsal runs nothing"

    async def prepare(self, invocation: Invocation) -> Dispatch | Refusal:  # noqa: ARG002 - the port
        """Nothing runs here."""
        raise TypeError("a rehearsal prepares nothing")

    async def close(self) -> None:
        """Nothing to close."""


@asynccontextmanager
async def rehearse(bundle: Bundle, *, engine: PolicyEngine, report: Callable[[Exception], None]) -> AsyncGenerator[Evaluate]:
    """Start `engine` on the bundle's policies; in between, calls are decided by the gateway's own stages."""

    def no_id() -> UUID:
        raise TypeError("a rehearsal writes no record")

    async def no_key(_: bytes) -> None:
        """A rehearsal authenticates nobody."""

    async def evaluate(call: Proposed, facts: Facts) -> Evaluation:
        ledger: Any = StatedFacts(facts)
        path = build_path(keys=(), find_key=no_key, ledger=ledger, engine=engine, executor=NoExecutor(), new_id=no_id, report=report)
        enforcer = Enforcer(path, ledger=ledger, engine=engine, tasks=TaskSet(), new_id=no_id, report=report)
        return await enforcer.evaluate(call)

    try:
        await engine.activate(bundle.policy)
        yield evaluate
    finally:
        await engine.close()
