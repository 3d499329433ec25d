"""One transaction for many writes of one tenant.

Locks are taken in one order by every writer: ending calls, control row, claims, runs, versions, budgets, rates, approvals,
log head, each sorted by key. Between the locks and the writes everything is reckoned in memory, in order of arrival.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from gateway.domain.budgets import Charge
from gateway.domain.call import LEASE_GRACE_S, Decided, Informed, Proposed, Recalled
from gateway.domain.catalogue import BusinessKey, Replay, Risk
from gateway.domain.decision import Again, Refusal
from gateway.domain.outcome import CallState
from gateway.domain.record import RecordDraft
from gateway.evidence.vault import DataKey
from gateway.ledger.claims import Binding, Claims, bindings_of
from gateway.ledger.coalescer import Write
from gateway.ledger.database import Connection, Statements
from gateway.ledger.endings import Ending, Endings
from gateway.ledger.grants import Grants, Question
from gateway.ledger.holdings import Holdings
from gateway.ledger.log import Entry, append_records
from gateway.ledger.sealing import seal_json


@dataclass(eq=False, kw_only=True)
class Admission(Write):
    """Admit one call. Found: None (committed), a KnownCall, a Refusal, or Again."""

    call: Decided
    record: RecordDraft
    told: Mapping[str, Any]
    charges: Sequence[Charge]


@dataclass(eq=False, kw_only=True)
class End(Write):
    """End one call. Found: whether it counted."""

    ending: Ending
    is_ending: bool = True


@dataclass(eq=False, kw_only=True)
class Denial(Write):
    """Record one refused call. Found: the approval that it opened or met, or None."""

    call: Proposed
    refusal: Refusal
    record: RecordDraft
    question: Question | None
    """Set where a person is to be asked."""


@dataclass(eq=False, kw_only=True)
class Note(Write):
    """Record something that changes nothing else, such as a replay."""

    record: RecordDraft
    about: UUID | None
    binding: Binding | None = None
    """A transport key that was answered by a call that it did not name yet; from now on it does."""


@dataclass
class Batch:
    """The writes of one transaction."""

    tenant: str
    sql: Statements
    transport_ttl_s: float
    writes: Sequence[Write]
    new_id: Callable[[], UUID]
    keys: Mapping[str, DataKey] = field(default_factory=dict[str, DataKey])
    """The data keys of the subjects that `subjects_of` named."""
    postponed: list[Write] = field(default_factory=list)
    """Writes that must not share a transaction with an earlier one here; the caller commits them next."""

    async def run(self, connection: Connection) -> None:
        """Take locks, reckon, write. Sets `found` of every write."""
        writes = self._without_clashes()
        admissions = [write for write in writes if isinstance(write, Admission)]
        ends = [write for write in writes if isinstance(write, End)]
        denials = [write for write in writes if isinstance(write, Denial)]
        notes = [write for write in writes if isinstance(write, Note)]

        claims = Claims(self.tenant, self.sql, self.transport_ttl_s)
        holdings = Holdings(self.tenant, self.sql)
        endings = Endings(self.tenant, self.sql, self.keys)
        grants = Grants(self.tenant, self.sql, self.new_id)

        in_force = await endings.lock(connection, [write.ending for write in ends], with_control=bool(admissions))
        counting = [write for write in ends if endings.judge(write.ending)]
        admissions = self._admissible(admissions, in_force)
        rebound = [write.binding for write in notes if write.binding is not None]
        wanted = [binding for write in admissions for binding in bindings_of(write.call)] + rebound
        kept = [*endings.bindings([write.ending for write in counting]), *_refused_keys(denials)]
        await claims.take(connection, wanted, kept)
        failed = [endings.run_of(write.ending) for write in counting if write.ending.state == "failed"]
        await holdings.lock_runs(connection, [write.call for write in admissions], failed)
        charges = [charge for write in admissions for charge in write.charges]
        await holdings.lock_budgets(connection, charges, endings.places([write.ending for write in counting]))

        questions = [write.question for write in denials if write.question is not None]
        undone = [write.ending.decision_id for write in counting if write.ending.state is CallState.OPEN]
        await grants.lock(connection, [write.call for write in admissions], undone, questions)

        log: list[Entry] = []
        for write in ends:
            write.found = write in counting
        for write in counting:
            endings.book(write.ending, holdings)
        for ending, record, entries in endings.counted:
            log.append(Entry(record, ending.decision_id, {"budgets": entries} | grants.given_back(ending.decision_id)))
        admitted = [write for write in admissions if self._admit(write, claims, grants, holdings, log)]
        for binding in rebound:
            claims.judge([binding])

        await endings.write(connection)
        await claims.write(connection)
        await holdings.write(connection)
        await self._insert_calls(connection, admitted, holdings)
        await grants.write(connection, undone, questions)
        log += grants.log
        for write in denials:
            write.found = approval = grants.request_of(write.question) if write.question else write.refusal.approval
            log.append(Entry(write.record, None, {"approval_id": approval.approval_id} if approval else {}))
        log += [Entry(write.record, write.about, {}) for write in notes]
        await append_records(connection, self.sql, self.tenant, log, self.keys)

    def _without_clashes(self) -> list[Write]:
        # Two admissions under one identity, or two ends of one call, are reckoned one after the other.
        seen: set[Any] = set()
        kept: list[Write] = []
        for write in self.writes:
            keys: list[Any] = []
            if isinstance(write, Admission):
                keys = [binding.key for binding in bindings_of(write.call)]
            elif isinstance(write, Denial) and isinstance(write.call, Recalled) and write.call.transport_key is not None:
                keys = [("transport", write.call.caller.name, write.call.transport_key)]
            elif isinstance(write, Note) and write.binding is not None:
                keys = [write.binding.key]
            elif isinstance(write, End):
                keys = [write.ending.decision_id]
            if seen.isdisjoint(keys):
                seen.update(keys)
                kept.append(write)
            else:
                self.postponed.append(write)
        return kept

    def _admissible(self, admissions: list[Admission], in_force: tuple[str, int] | None) -> list[Admission]:
        for write in admissions:
            if (write.call.bundle.revision, write.call.epoch) != in_force:
                write.found = Again(stage="resolve")
        return [write for write in admissions if write.found is None]

    def _admit(self, write: Admission, claims: Claims, grants: Grants, holdings: Holdings, log: list[Entry]) -> bool:
        # Grants and budgets are asked only for a call that nobody else is already making.
        write.found = claims.judge(bindings_of(write.call)) or grants.judge(write.call)
        if write.found is None:
            held = holdings.admit(write.call, write.charges)
            if isinstance(held, Refusal | Again):
                write.found = held
            else:
                grants.use(write.call)
                log.append(Entry(write.record, None, {"budgets": held}))
        return write.found is None

    async def _insert_calls(self, connection: Connection, admitted: Sequence[Admission], holdings: Holdings) -> None:
        if not admitted:
            return
        rows = [
            (
                write.call.decision_id,
                write.call.principal.agent,
                write.call.principal.subject,
                write.call.run_id,
                write.call.workflow_name,
                write.call.tool.name,
                write.call.fingerprint,
                orjson.dumps(write.told),
                write.call.tool.declaration.risk.value,
                (Replay.NEVER if _is_for_client(write.call) else write.call.tool.replay).value,
                write.call.tool.declaration.timeout + (0.0 if _is_for_client(write.call) else LEASE_GRACE_S),
                _sealed_invocation(_invocation_of(write.call), self.keys.get(write.call.principal.subject)),
                write.call.business_key,
                declared.window if isinstance(declared := write.call.tool.declaration.idempotency, BusinessKey) else None,
                holdings.ordinals.get(write.call.decision_id),
                (CallState.PENDING_CLIENT if _is_for_client(write.call) else CallState.RUNNING).value,
            )
            for write in admitted
        ]
        await connection.execute(self.sql["insert_calls"], self.tenant, rows, holdings.holds())


def subjects_of(writes: Sequence[Write]) -> set[str]:
    """The subjects whose data these writes store."""
    found: set[str] = set()
    for write in writes:
        if isinstance(write, Admission):
            found.add(write.call.principal.subject)
        record = write.ending.record if isinstance(write, End) else write.record if isinstance(write, Admission | Denial | Note) else None
        if record is not None and (record.payloads or isinstance(write, End)):
            found.add(record.facts.get("subject") or "")
    return found


def _sealed_invocation(invocation: bytes | None, key: DataKey | None) -> bytes | None:
    if invocation is None or key is None:
        return None
    needed = orjson.loads(invocation)
    secret = {name: needed.pop(name) for name in ("args", "context")}
    return orjson.dumps(needed | {"sealed": seal_json(key, secret, b"invocation")})


def _is_for_client(call: Decided) -> bool:
    return call.tool.declaration.execute.client is not None


def _refused_keys(denials: Sequence[Denial]) -> list[Binding]:
    """The transport keys of refused calls that got as far as policy: they stay bound to their input, unless they are already."""
    calls = [write.call for write in denials if isinstance(write.call, Informed)]
    return [
        Binding(key=("transport", call.principal.agent, call.transport_key), decision_id=call.decision_id, fingerprint=call.fingerprint)
        for call in calls
        if call.transport_key is not None
    ]


def _invocation_of(call: Decided) -> bytes | None:
    """What a resolver will need to repeat or probe the call, or a client to perform it; nothing where only a person could."""
    needed: dict[str, Any] = {"revision": call.bundle.revision, "args": call.args, "context": dict(call.context)}
    if (client := call.tool.declaration.execute.client) is not None:
        return orjson.dumps(needed | {"kind": client.kind})
    if call.tool.declaration.risk is Risk.READ or call.tool.replay is Replay.NEVER:
        return None
    return orjson.dumps(needed)
