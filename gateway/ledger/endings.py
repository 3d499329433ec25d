"""Ends of calls inside a batch: locked, judged by state and fence, booked, written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from gateway.domain.budgets import CALLS, CONCURRENCY
from gateway.domain.outcome import CallState
from gateway.domain.ports import Spend
from gateway.domain.record import RecordDraft
from gateway.evidence.vault import DataKey
from gateway.ledger.claims import Binding
from gateway.ledger.database import Connection, Row, Statements
from gateway.ledger.holdings import Holdings, Place
from gateway.ledger.sealing import seal_result


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A change of an admitted call's state, with everything that is booked together with it."""

    decision_id: UUID
    fence: int | None
    """The fence that the writer holds; None where the state alone decides (an operator)."""
    from_states: frozenset[CallState]
    is_sender: bool = False
    """Written by who sent the call: it no longer counts once a resolver has begun."""
    is_in_time_only: bool = False
    """It does not count once the call's lease is over."""
    state: CallState
    status: str
    reason_code: str
    result: Mapping[str, Any]
    attempts: int = 1
    spend: Spend
    actual: Mapping[str, int] | None = None
    """Unit -> micro-units that were really spent, where the tool says so."""
    record: RecordDraft


class Endings:
    """The ends of one batch."""

    def __init__(self, tenant: str, sql: Statements, keys: Mapping[str, DataKey]) -> None:
        self._keys = keys
        self._tenant = tenant
        self._sql = sql
        self._rows: dict[UUID, Row] = {}
        self._held: dict[UUID, list[Row]] = {}
        self.counted: list[tuple[Ending, RecordDraft, list[dict[str, Any]]]] = []
        """Endings that count, with their records and budget entries."""

    async def lock(self, connection: Connection, endings: Sequence[Ending], *, with_control: bool) -> tuple[str, int] | None:
        """Lock the calls and find what they hold; then, `with_control`, the control row: answers revision and epoch in force."""
        if not endings and not with_control:
            return None
        in_force = None
        ids = [ending.decision_id for ending in endings]
        for row in await connection.fetch(self._sql["lock_calls"], self._tenant, ids, with_control):
            match row["part"]:
                case "call":
                    self._rows[row["decision_id"]] = row
                case "held":
                    self._held.setdefault(row["decision_id"], []).append(row)
                case _:
                    in_force = row["revision"], row["epoch"]
        return in_force

    def judge(self, ending: Ending) -> bool:
        """Whether an ending still counts: its call is where it should be, and nobody with a newer fence took it over."""
        row = self._rows.get(ending.decision_id)
        if row is None or CallState(row["state"]) not in ending.from_states:
            return False
        if ending.is_sender and row["is_resolving"]:
            return False
        if ending.is_in_time_only and row["is_late"]:
            return False
        if row["state"] == ending.state.value:
            return False  # a doubt stays a doubt
        return ending.fence is None or row["fence"] == ending.fence

    def run_of(self, ending: Ending) -> tuple[str, str]:
        """The run (agent, id) of a locked call."""
        row = self._rows[ending.decision_id]
        return row["agent"], row["run_id"]

    def bindings(self, endings: Sequence[Ending]) -> list[Binding]:
        """The business claims of endings, whose windows begin: locked before runs and budgets, as an admission does it."""
        rows = [self._rows[ending.decision_id] for ending in endings if ending.state is CallState.SUCCEEDED]
        return [
            Binding(key=("business", row["tool"], row["business_key"]), decision_id=row["decision_id"], fingerprint=row["fingerprint"])
            for row in rows
            if row["business_key"] is not None
        ]

    def places(self, endings: Sequence[Ending]) -> set[Place]:
        """The budgets that endings change."""
        return {(held["name"], held["scope"], held["period"]) for ending in endings for held in self._ended_holds(ending)}

    def book(self, ending: Ending, holdings: Holdings) -> None:
        """Reckon an ending that counts."""
        was_in_doubt = self._rows[ending.decision_id]["state"] == CallState.IN_DOUBT.value
        record = replace(ending.record, kind="resolution") if was_in_doubt else ending.record
        entries: list[dict[str, Any]] = []
        for held in self._ended_holds(ending):
            place = (held["name"], held["scope"], held["period"])
            entries.append(holdings.book(place, held["unit"], held["amount"], _spent(ending, held)))
        if ending.state is CallState.FAILED:
            holdings.count_failure(self.run_of(ending))
        self.counted.append((ending, record, entries))

    async def write(self, connection: Connection) -> None:
        """Write what counted."""
        if not self.counted:
            return
        sql, tenant = self._sql, self._tenant
        endings = [ending for ending, _, _ in self.counted]
        over = [
            (ending.decision_id, ending.state.value, ending.status, ending.reason_code, self._sealed(ending), ending.attempts)
            for ending in endings
        ]
        spent = [(ending.decision_id, held["name"], _spent(ending, held)) for ending in endings for held in self._ended_holds(ending)]
        holds = [(decision_id, name, "settled" if amount else "released", amount) for decision_id, name, amount in spent]
        await connection.execute(sql["end_calls"], tenant, over, holds)
        if done := [binding.decision_id for binding in self.bindings(endings)]:
            await connection.execute(sql["end_business_claims"], tenant, done)

    def _sealed(self, ending: Ending) -> bytes:
        return seal_result(self._keys.get(ending.record.facts.get("subject") or ""), ending.result)

    def _ended_holds(self, ending: Ending) -> list[Row]:
        held = self._held.get(ending.decision_id, [])
        # A doubt goes on holding what it may have spent, but it occupies nobody.
        return [row for row in held if row["unit"] == CONCURRENCY] if ending.spend == "hold" else held


def _spent(ending: Ending, held: Row) -> int:
    unit: str = held["unit"]
    amount: int = held["amount"]
    if unit == CONCURRENCY or ending.spend == "nothing":
        return 0
    if unit == CALLS:
        return amount
    if ending.spend != "all":
        return 0
    return (ending.actual or {}).get(unit, amount)
