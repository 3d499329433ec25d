"""Revisions, activations and controls of tenants: everything that the control row stands for."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from gateway.domain.decision import LedgerUnavailable
from gateway.domain.in_force import Controls, RestrictionKind
from gateway.domain.ports import ControlRow, Kept, KeptRevision, Pushed, Restriction
from gateway.domain.record import RecordDraft
from gateway.ledger.database import Connection, Database, Rollback, Row
from gateway.ledger.log import Entry, append_records
from gateway.ledger.tenants import ensure_tenant


class PostgresRevisions:
    """Implements the port `RevisionStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = database.sql

    async def read_epochs(self) -> Mapping[str, int]:
        """The epoch of every tenant that has a revision in force."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["read_controls"])
        return {row["tenant"]: row["epoch"] for row in rows}

    async def read_in_force(self, tenant: str, *, known_epoch: int | None) -> ControlRow | None:
        """What is in force for a tenant, in one snapshot (without files where it is `known_epoch`); None where nothing is."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["read_in_force"], tenant, known_epoch)
        return _control_from_row(row) if row else None

    async def load(self, tenant: str, revision: str) -> bytes | None:
        """The packed files of a revision; None where it is not kept."""
        async with self._database.connection() as connection:
            return await connection.fetchval(self._sql["get_revision"], tenant, revision)

    async def push(self, tenant: str, pushed: Pushed) -> None:
        """Keep a revision that passed its checks. Pushing it again changes nothing."""
        async with self._database.connection() as connection:
            await self._insert(connection, tenant, pushed)

    async def list_revisions(self, tenant: str, *, before: tuple[datetime, str] | None, limit: int) -> Sequence[KeptRevision]:
        """Kept revisions, newest first; `before` is (pushed_at, revision) of the last one of the page before."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["list_revisions"], tenant, None, *(before or (None, None)), limit)
        return [KeptRevision(**dict(row)) for row in rows]

    async def get(self, tenant: str, revision: str) -> Kept | None:
        """One kept revision with its packed files."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["list_revisions"], tenant, revision, None, None, 1)
            files = await connection.fetchval(self._sql["get_revision"], tenant, revision)
        return Kept(about=KeptRevision(**dict(row)), files=files) if row and files is not None else None

    async def revision_before(self, tenant: str) -> str | None:
        """The last other revision that was in force before the active one."""
        async with self._database.connection() as connection:
            return await connection.fetchval(self._sql["revision_before"], tenant)

    async def activate(self, tenant: str, pushed: Pushed, record: RecordDraft, *, replaces: str | None) -> ControlRow | str:
        """Put a revision in force with its record; see the port."""
        sql, revision = self._sql, pushed.revision
        async with self._database.connection() as connection:
            # A gateway that joins others asks for no lock: under load it would wait for a gap between their batches.
            row = await connection.fetchrow(sql["read_in_force"], tenant, None)
        if row is not None and row["revision"] == revision:
            return _control_from_row(row)
        try:
            async with self._database.transaction() as connection:
                await ensure_tenant(connection, sql, tenant)
                control = await connection.fetchrow(sql["lock_control"], tenant)
                if control is None:
                    raise LedgerUnavailable("control row vanished")
                if control["revision"] not in {"", revision, replaces}:
                    raise Rollback(control["revision"])
                if control["revision"] != revision:
                    await self._insert(connection, tenant, pushed)
                    epoch = await connection.fetchval(sql["update_control"], tenant, revision)
                    await connection.execute(sql["insert_activation"], tenant, epoch, revision, pushed.by)
                    await append_records(connection, sql, tenant, [Entry(record, None, {})])
                row = await connection.fetchrow(sql["read_in_force"], tenant, None)
        except Rollback as stop:
            return str(stop.found)
        if row is None:
            raise LedgerUnavailable("control row vanished")
        return _control_from_row(row)

    async def restrict(self, tenant: str, kind: RestrictionKind, name: str, *, reason: str, by: str, record: RecordDraft) -> bool | None:
        """Take an agent, a tool or the tenant out of service, with a record. False where it was already; None where the tenant is unknown."""
        return await self._change(tenant, "insert_restriction", (kind, name, reason, by), record)

    async def release(self, tenant: str, kind: RestrictionKind, name: str, record: RecordDraft) -> bool | None:
        """Put it back into service, with a record. False where it was in service; None where the tenant is unknown."""
        return await self._change(tenant, "delete_restriction", (kind, name), record)

    async def list_restrictions(self, tenant: str) -> Sequence[Restriction]:
        """What is out of service, and why."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(self._sql["list_restrictions"], tenant)
        return [Restriction(**dict(row)) for row in rows]

    async def _change(self, tenant: str, statement: str, values: tuple[str, ...], record: RecordDraft) -> bool | None:
        try:
            async with self._database.transaction() as connection:
                if await connection.fetchrow(self._sql["lock_control"], tenant) is None:
                    raise Rollback(None)
                if not await connection.fetchval(self._sql[statement], tenant, *values):
                    raise Rollback(False)
                await connection.fetchval(self._sql["raise_epoch"], tenant)
                await append_records(connection, self._sql, tenant, [Entry(record, None, {})])
        except Rollback as stop:
            return None if stop.found is None else False
        return True

    async def _insert(self, connection: Connection, tenant: str, pushed: Pushed) -> None:
        await connection.execute(self._sql["insert_revision"], tenant, pushed.revision, pushed.files, pushed.name, pushed.note, pushed.by)


def _control_from_row(row: Row) -> ControlRow:
    named: dict[str, set[str]] = defaultdict(set)
    for restriction in row["restrictions"]:
        kind, _, name = restriction.partition(" ")
        named[kind].add(name)
    return ControlRow(
        revision=row["revision"],
        epoch=row["epoch"],
        digest_key=row["digest_key"],
        files=row["files"],
        controls=Controls.of({kind: frozenset(names) for kind, names in named.items()}),
    )
