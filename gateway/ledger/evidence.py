"""The log as evidence on PostgreSQL: turns at signing, checkpoints, proofs."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from uuid import UUID

from gateway.domain.ports import LogCheckpoint, NotCovered, RecordProof, StoredRecord
from gateway.evidence.signing import KeptTree
from gateway.evidence.tree import STORED_EVERY, Node, Tree, consistency_path, fold_level, fold_path, inclusion_path, nodes_between
from gateway.ledger.database import Connection, Database, Statements

NODES_AT_ONCE = 256
"""Nodes whose hashes are read together while an export's proof is written."""


class PostgresTurn:
    """Implements the port `SigningTurn`."""

    def __init__(self, connection: Connection, sql: Statements, tenant: str) -> None:
        self._connection = connection
        self._sql = sql
        self._tenant = tenant

    async def log_size(self) -> int:
        """How many records the log says it has."""
        return await self._connection.fetchval(self._sql["read_log_size"], self._tenant) or 0

    async def kept(self) -> KeptTree | None:
        """The tree as it was kept; None before the first checkpoint."""
        row = await self._connection.fetchrow(self._sql["read_checkpoint"], self._tenant)
        return KeptTree(size=row["size"], peaks=row["peaks"], alarm=row["alarm"]) if row and row["size"] is not None else None

    async def records(self, first: int, limit: int) -> Sequence[StoredRecord]:
        """Stored records from a position on, in order."""
        rows = await self._connection.fetch(self._sql["records_from"], self._tenant, first, limit)
        return [StoredRecord(position=row["position"], body=row["body"], leaf=row["leaf"]) for row in rows]

    async def node(self, node: Node) -> bytes | None:
        """A stored node of the tree."""
        return (await read_hashes(self._connection, self._sql, self._tenant, [node])).get(node)

    async def keep(self, tree: Tree, nodes: Sequence[tuple[Node, bytes]], note: str) -> None:
        """Keep the tree as it was just signed."""
        heights, numbers, hashes = [node[0] for node, _ in nodes], [node[1] for node, _ in nodes], [found for _, found in nodes]
        if nodes:
            await self._connection.execute(self._sql["insert_nodes"], self._tenant, heights, numbers, hashes)
        await self._connection.execute(self._sql["write_checkpoint"], self._tenant, tree.size, tree.to_bytes(), note)

    async def tell(self, alarm: str | None) -> None:
        """Let everybody see why nothing is signed, or that it is again."""
        await self._connection.execute(self._sql["write_alarm"], self._tenant, alarm)


class PostgresEvidence:
    """Implements the ports `SigningLedger` and `LogEvidence`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = database.sql

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncGenerator[PostgresTurn | None]:
        """A turn at signing; None where somebody else has it. The lock ends with the transaction, also where we freeze."""
        async with self._database.transaction() as connection:
            is_ours = await connection.fetchval(self._sql["lead_signing"], tenant)
            yield PostgresTurn(connection, self._sql, tenant) if is_ours else None

    async def log_id(self, signing_key: bytes) -> str | None:
        """What this installation is called in its logs, held by this key from now on; None where it is held by another one."""
        async with self._database.connection() as connection:
            await connection.execute(self._sql["pin_signing_key"], signing_key)
            row = await connection.fetchrow(self._sql["read_installation_keys"])
        return row["log_id"] if row and row["signing_key"] == signing_key else None

    async def read_log_id(self) -> str:
        """What this installation is called in its logs."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["read_installation_keys"])
        return row["log_id"] if row else ""

    async def add_partitions(self, months: int) -> None:
        """Make partitions for the months to come, where they are missing."""
        async with self._database.connection() as connection:
            await connection.execute(self._sql["add_record_partitions"], months)

    async def checkpoint(self, tenant: str) -> LogCheckpoint | None:
        """The log's last checkpoint and what it does not cover yet; None where this tenant has no log."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(self._sql["read_checkpoint"], tenant)
        if row is None:
            return None
        # A log that was never signed can have an alarm; its row then holds no note.
        is_signed = bool(row["note"])
        since = row["uncovered_since"]
        return LogCheckpoint(
            note=row["note"] if is_signed else None,
            size=row["size"] if is_signed else 0,
            log_size=row["log_size"],
            published_at=row["published_at"] if is_signed else None,
            behind_s=max(0.0, (row["now"] - since).total_seconds()) if since else 0.0,
            alarm=row["alarm"],
        )

    async def prove(self, tenant: str, decision_id: UUID) -> RecordProof | NotCovered | None:
        """The proof of a record under the last checkpoint; None where this tenant has no such record."""
        async with self._database.connection() as connection:
            place = await connection.fetchrow(self._sql["get_place"], tenant, decision_id)
            if place is None:
                return None
            signed = await connection.fetchrow(self._sql["read_checkpoint"], tenant)
            if signed is None or not signed["note"] or signed["size"] <= place["position"]:
                return NotCovered(alarm=signed["alarm"] if signed else None)
            path = inclusion_path(place["position"], signed["size"])
            hashes = await read_hashes(connection, self._sql, tenant, [node for step in path for node in step])
        return RecordProof(
            decision_id=decision_id,
            position=place["position"],
            record=place["body"],
            note=signed["note"],
            inclusion=fold_path(path, hashes),
        )

    async def extends(self, tenant: str, old: int, size: int) -> list[bytes]:
        """The RFC 6962 proof that the log of `size` signed records extends the one of `old`."""
        path = consistency_path(old, size)
        async with self._database.connection() as connection:
            hashes = await read_hashes(connection, self._sql, tenant, [node for step in path for node in step])
        return fold_path(path, hashes)

    async def around(self, tenant: str, begin: int, positions: Iterable[int], behind: int) -> AsyncIterator[tuple[int, int, bytes]]:
        """The subtrees (position, height, root) that cover signed records from `begin` up to before `behind`, but `positions`, which rise."""
        waiting: list[Node] = []
        async with self._database.connection() as connection:
            for position in chain(positions, (behind,)):
                waiting += nodes_between(begin, position)
                begin = position + 1
                if len(waiting) >= NODES_AT_ONCE:
                    for found in await self._rooted(connection, tenant, waiting):
                        yield found
                    waiting.clear()
            for found in await self._rooted(connection, tenant, waiting):
                yield found

    async def _rooted(self, connection: Connection, tenant: str, nodes: Sequence[Node]) -> list[tuple[int, int, bytes]]:
        hashes = await read_hashes(connection, self._sql, tenant, nodes)
        return [(number << height, height, hashes[height, number]) for height, number in nodes]


async def read_hashes(connection: Connection, sql: Statements, tenant: str, nodes: Sequence[Node]) -> Mapping[Node, bytes]:
    """The hashes of signed nodes: each folded from the stored ones below it. Raises LookupError where some are missing."""
    if not nodes:
        return {}
    # Stored are every STORED_EVERY-th height, and the leaves in the records themselves.
    spans = [(height - height % STORED_EVERY, height % STORED_EVERY, number) for height, number in nodes]
    rows = await connection.fetch(
        sql["hashes_between"],
        tenant,
        list(range(len(nodes))),
        [stored for stored, _, _ in spans],
        [number << above for _, above, number in spans],
        [(number + 1) << above for _, above, number in spans],
    )
    below: dict[int, list[bytes]] = {}
    for row in rows:
        below.setdefault(row["n"], []).append(row["hash"])
    for n, (_, above, _) in enumerate(spans):
        if len(below.get(n, ())) != 1 << above:
            raise LookupError(f"node {nodes[n]} of the tree is not stored")
    return {node: fold_level(below[n]) for n, node in enumerate(nodes)}
