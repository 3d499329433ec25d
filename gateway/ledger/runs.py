"""Runs whose model loop the gateway owns, on PostgreSQL: leases, turns and events, one transaction a step."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from gateway.domain.outcome import CallState
from gateway.domain.record import RecordDraft
from gateway.domain.runs import (
    Bounds,
    Event,
    HeldRun,
    Hold,
    HoldLost,
    NewRun,
    PlainRun,
    RunKey,
    RunKeyReused,
    RunRow,
    RunState,
    Step,
    StoredEvent,
    Turn,
    Waits,
)
from gateway.ledger.database import Connection, Database, Row
from gateway.ledger.log import Entry, append_records

_OPEN_EVENTS = 1_000
"""Events of one open round: far more than its calls can have."""


class PostgresRuns:
    """Implements the port `RunStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = database.sql

    async def start(self, run: NewRun, first: Event, *, lease_s: float) -> HeldRun | RunKey:
        """Store a run with its first event and hold it; or the run that its start key already started."""
        place = _place(run.key)
        bounds = vars(run.bounds)
        async with self._database.transaction() as connection:
            is_new = await connection.fetchval(
                self._sql["insert_model_run"],
                *place,
                run.workflow,
                run.subject,
                run.model,
                run.prompt,
                orjson.dumps(dict(run.context)),
                orjson.dumps(bounds),
                run.start_key,
                run.request_digest,
                run.bounds.duration_s,
                lease_s,
            )
            if is_new:
                await self._insert_events(connection, run.key, [first], after=0)
        if is_new:
            return HeldRun(
                hold=Hold(key=run.key, fence=1),
                workflow=run.workflow,
                subject=run.subject,
                model=run.model,
                prompt=run.prompt,
                context=run.context,
                bounds=run.bounds,
                seconds_left=run.bounds.duration_s,
                model_calls=0,
                tokens=0,
                last_event_id=1,
            )
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["find_started_run"], run.key.tenant, run.key.agent, run.start_key)
        if row is None or row["request_digest"] != run.request_digest:
            raise RunKeyReused
        return RunKey(tenant=run.key.tenant, agent=run.key.agent, run_id=row["run_id"])

    async def take_due(self, tenant: str, *, lease_s: float, limit: int) -> list[HeldRun]:
        """Take over running runs whose lease is over, each under a new fence."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["take_due_runs"], tenant, lease_s, limit)
            return [await self._held(connection, row) for row in rows]

    async def reopen(self, key: RunKey, *, lease_s: float) -> HeldRun | None:
        """Take over a run whose lease is over, or that ended resumably; None where it is held, or ended for good."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["reopen_run"], *_place(key), lease_s)
            return await self._held(connection, row) if row else None

    async def renew(self, hold: Hold, *, lease_s: float) -> None:
        """Hold on to a run. Raises HoldLost."""
        async with self._database.connection() as connection:
            if not await connection.fetchval(self._sql["renew_run"], *_place(hold.key), hold.fence, lease_s):
                raise HoldLost

    async def release(self, hold: Hold) -> None:
        """Give a run back, so that another gateway takes it over at once."""
        async with self._database.connection() as connection:
            await connection.execute(self._sql["release_run"], *_place(hold.key), hold.fence)

    async def count_model_call(self, hold: Hold) -> int:
        """Count a request to the model before it is sent; answers how many there were. Raises HoldLost."""
        async with self._database.connection() as connection:
            count = await connection.fetchval(self._sql["count_model_call"], *_place(hold.key), hold.fence)
        if count is None:
            raise HoldLost
        return count

    async def write(self, hold: Hold, step: Step, *, last_event_id: int) -> int:
        """Commit a step; answers the last event id. Safe to repeat with the same arguments. Raises HoldLost."""
        place, ended = _place(hold.key), step.ended
        now_last = last_event_id + len(step.events)
        async with self._database.transaction() as connection:
            is_ours = await connection.fetchval(
                self._sql["step_run"],
                *place,
                hold.fence,
                last_event_id,
                len(step.events),
                int(step.turn is not None),
                step.tokens,
                ended.state.value if ended else None,
                ended.end.value if ended else None,
                ended.end.is_resumable if ended else False,
                ended.answer if ended else None,
            )
            if is_ours:
                await self._insert_events(connection, hold.key, step.events, after=last_event_id)
                if step.turn is not None:
                    turn = step.turn
                    await connection.execute(self._sql["insert_model_turn"], *place, turn.number, turn.response, turn.reply, now_last)
                if step.reply is not None:
                    await connection.execute(self._sql["write_reply"], *place, *step.reply)
            # An earlier try may have been committed without anybody hearing of it.
            elif not step.events or not await connection.fetchval(self._sql["find_step"], *place, hold.fence, now_last):
                raise HoldLost
        return now_last

    async def kept_approvals(self, key: RunKey, transport_keys: Sequence[bytes]) -> Mapping[bytes, str]:
        """The approval that was asked for each call, by its transport key (SHA-256), where there is one."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["kept_approvals"], key.tenant, key.agent, list(transport_keys))
        found = {row["digest"]: orjson.loads(row["body"])["approval_id"] for row in rows}
        return {digest: approval for digest, approval in found.items() if approval}

    async def read_waits(self, tenant: str, approvals: Sequence[str], decisions: Sequence[UUID]) -> Waits:
        """How approvals and calls stand."""
        async with self._database.connection() as connection:
            pending = await connection.fetch(self._sql["waiting_approvals"], tenant, [UUID(each) for each in approvals])
            calls = await connection.fetch(self._sql["call_states"], tenant, list(decisions))
        return Waits(
            pending_approvals=frozenset(str(row["approval_id"]) for row in pending),
            states={row["decision_id"]: CallState(row["state"]) for row in calls},
            resolvable=frozenset(row["decision_id"] for row in calls if row["is_due"]),
        )

    async def cancel(self, key: RunKey, record: RecordDraft, last: Event) -> bool:
        """Cancel a run of whatever kind, with its record: no further call of it is admitted. False where it was already."""
        async with self._database.transaction() as connection:
            is_new = bool(await connection.fetchval(self._sql["cancel_run"], *_place(key)))
            event_id = await connection.fetchval(self._sql["cancel_model_run"], *_place(key))
            if event_id is not None:
                await self._insert_events(connection, key, [last], after=event_id - 1)
            if is_new:
                await append_records(connection, self._sql, key.tenant, [Entry(record, None, {})])
        return is_new

    async def get(self, key: RunKey) -> RunRow | None:
        """A run whose loop the gateway owns."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["get_model_run"], *_place(key))
        return _run_row(row) if row else None

    async def get_plain(self, key: RunKey) -> PlainRun | None:
        """A run by its calls, whoever owns its loop."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["get_plain_run"], *_place(key))
        if row is None:
            return None
        return PlainRun(
            key=key,
            workflow=row["workflow"] or None,
            subject=row["subject"] or None,
            calls=row["calls"],
            failures=row["failures"],
            cancelled_at=row["cancelled_at"],
        )

    async def find(
        self, tenant: str, agent: str, *, state: RunState | None, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[RunRow]:
        """An agent's runs, newest first; `before` is start and id of the last one of the page before."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                self._sql["list_model_runs"], tenant, agent, state.value if state else None, *(before or (None, None)), limit
            )
        return [_run_row(row) for row in rows]

    async def events(self, key: RunKey, *, after: int, limit: int) -> tuple[RunState, Sequence[StoredEvent]] | None:
        """The state of a run, and its events after an id; None where there is no such run."""
        async with self._database.connection() as connection:
            # The state first: where it says that the run has ended, the events that follow are all there are.
            row = await connection.fetchrow(self._sql["get_model_run"], *_place(key))
            if row is None:
                return None
            events = await self._read_events(connection, key, after, limit)
        return RunState(row["state"]), events

    async def _insert_events(self, connection: Connection, key: RunKey, events: Sequence[Event], *, after: int) -> None:
        if events:
            ids = [after + offset for offset in range(1, len(events) + 1)]
            bodies = [orjson.dumps(dict(event.data)) for event in events]
            await connection.execute(self._sql["insert_run_events"], *_place(key), ids, [event.type for event in events], bodies)

    async def _read_events(self, connection: Connection, key: RunKey, after: int, limit: int) -> tuple[StoredEvent, ...]:
        rows = await connection.fetch(self._sql["get_run_events"], *_place(key), after, limit)
        return tuple(StoredEvent(id=row["event_id"], type=row["type"], at=row["at"], data=orjson.loads(row["body"])) for row in rows)

    async def _held(self, connection: Connection, row: Row) -> HeldRun:
        key = _key(row)
        rows = await connection.fetch(self._sql["get_model_turns"], *_place(key))
        turns = tuple(Turn(number=each["turn"], response=each["response"], reply=each["reply"]) for each in rows)
        is_open = bool(rows) and rows[-1]["reply"] is None
        return HeldRun(
            hold=Hold(key=key, fence=row["fence"]),
            workflow=row["workflow"],
            subject=row["subject"],
            model=row["model"],
            prompt=row["prompt"],
            context=orjson.loads(row["context"]),
            bounds=Bounds(**orjson.loads(row["bounds"])),
            seconds_left=row["seconds_left"],
            model_calls=row["model_calls"],
            tokens=row["tokens"],
            last_event_id=row["events"],
            turns=turns,
            open_events=await self._read_events(connection, key, rows[-1]["first_event"], _OPEN_EVENTS) if is_open else (),
        )


def _place(key: RunKey) -> tuple[str, str, str]:
    return key.tenant, key.agent, key.run_id


def _key(row: Row) -> RunKey:
    return RunKey(tenant=row["tenant"], agent=row["agent"], run_id=row["run_id"])


def _run_row(row: Row) -> RunRow:
    named: dict[str, Any] = {name: row[name] for name in ("workflow", "subject", "model", "answer", "started_at", "ends_by", "finished_at")}
    return RunRow(
        key=_key(row),
        state=RunState(row["state"]),
        end=row["reason_code"],
        rounds=row["turns"],
        model_calls=row["model_calls"],
        tokens=row["tokens"],
        last_event_id=row["events"],
        **named,
    )
