"""The two identities of calls inside a batch: taking free claims, judging the ones that stand, moving the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from gateway.domain.call import Decided, KnownCall
from gateway.ledger.database import Connection, Statements
from gateway.ledger.facts import known_from_row

Kind = Literal["transport", "business"]
Key = tuple[Kind, str, bytes]


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A claim that a write wants: for which decision, with which input."""

    key: Key
    decision_id: UUID
    fingerprint: bytes


def bindings_of(call: Decided) -> list[Binding]:
    """The claims that an admission of `call` needs, in lock order."""
    keys: list[Key] = []
    if call.business_key is not None:
        keys.append(("business", call.tool.name, call.business_key))
    if call.transport_key is not None:
        keys.append(("transport", call.principal.agent, call.transport_key))
    return [Binding(key=key, decision_id=call.decision_id, fingerprint=call.fingerprint) for key in keys]


class Claims:
    """The claims of one batch. No two writes of a batch want the same claim; the batch sees to that."""

    def __init__(self, tenant: str, sql: Statements, transport_ttl_s: float) -> None:
        self._tenant = tenant
        self._sql = sql
        self._ttl_s = transport_ttl_s
        self._standing: dict[Key, KnownCall] = {}
        self._moved: list[Binding] = []

    async def take(self, connection: Connection, wanted: Sequence[Binding], kept: Sequence[Binding]) -> None:
        """Take or lock every claim, in one order; look up who holds those of `wanted` that are not free.

        `kept` are the claims of calls that end here and of refused ones: nobody judges them, but they are locked in their place.
        """
        bindings = {binding.key: binding for binding in (*kept, *wanted)}
        if not bindings:
            return
        rows = await connection.fetch(self._sql["take_claims"], self._tenant, [self._row(binding) for binding in bindings.values()])
        asked = {binding.key: binding.decision_id for binding in wanted}
        taken = [
            key for row in rows if row["decision_id"] != asked.get(key := (row["kind"], row["scope"], row["digest"]), row["decision_id"])
        ]
        if taken:
            for row in await connection.fetch(self._sql["find_holders"], self._tenant, taken):
                self._standing[row["kind"], row["scope"], row["digest"]] = known_from_row(row["kind"], row)

    def judge(self, wanted: Sequence[Binding]) -> KnownCall | None:
        """The call that stands in the way of any of `wanted`, or None; then all of them are to be moved."""
        for binding in wanted:
            known = self._standing.get(binding.key)
            if known is not None and known.holds(binding.fingerprint):
                return known
        self._moved += [binding for binding in wanted if binding.key in self._standing]
        return None

    async def write(self, connection: Connection) -> None:
        """Move the claims that were judged free."""
        if self._moved:
            await connection.execute(self._sql["move_claims"], self._tenant, [self._row(binding) for binding in self._moved])

    def _row(self, binding: Binding) -> tuple[Any, ...]:
        ttl_s = self._ttl_s if binding.key[0] == "transport" else None
        return (*binding.key, binding.fingerprint, binding.decision_id, ttl_s)
