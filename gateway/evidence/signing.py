"""Signing the log: at most one signer at a time, which hashes what is stored and refuses a log that shrank or forked.

One look is one database transaction. Order: hash the new records, publish the note outside of the database, then keep the
tree. A signer that dies in between leaves a note that is ahead of the kept tree; the next one catches up with it first.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from gateway.domain.decision import GatewayFault
from gateway.domain.ports import StoredRecord
from gateway.domain.record import leaf_hash
from gateway.evidence.note import Checkpoint, NoteRefused, PublicKey, Signer
from gateway.evidence.tree import STORED_EVERY, Node, Tree, fold_level

LOOK_EVERY_S = 1.0
MAX_RECORDS = 1_000
"""Records that one look hashes; a backlog is worked off look by look, with pauses for the calls."""
BLOCK = 1 << STORED_EVERY
PARTITIONS_EVERY_S = 3600.0
MONTHS_AHEAD = 3


class LogRefused(Exception):
    """The log is not what was signed, or its last note cannot be read: nothing is signed, and somebody must look."""


class PlaceUnavailable(Exception):
    """The last note cannot be read, or the next one not written: nothing may be signed."""


class Place(Protocol):
    """Keeps the notes of logs, in order, and gives the last one back."""

    async def last(self, origin: str) -> str | None:
        """The last note of a log; None before its first. Raises PlaceUnavailable."""
        ...

    async def append(self, origin: str, note: str, *, size: int, after: str | None) -> None:
        """Publish `note` (of a log of `size` records), only if `after` is still the last one. Raises PlaceUnavailable."""
        ...


@dataclass(frozen=True, kw_only=True)
class KeptTree:
    """What the database keeps of the tree as far as it was signed."""

    size: int
    peaks: bytes
    alarm: str | None


class SigningTurn(Protocol):
    """One transaction as the log's only signer."""

    async def log_size(self) -> int:
        """How many records the log says it has."""
        ...

    async def kept(self) -> KeptTree | None:
        """The tree as it was kept; None before the first checkpoint."""
        ...

    async def records(self, first: int, limit: int) -> Sequence[StoredRecord]:
        """Stored records from a position on, in order."""
        ...

    async def node(self, node: Node) -> bytes | None:
        """A stored node of the tree."""
        ...

    async def keep(self, tree: Tree, nodes: Sequence[tuple[Node, bytes]], note: str) -> None:
        """Keep the tree as it was just signed."""
        ...

    async def tell(self, alarm: str | None) -> None:
        """Let everybody see why nothing is signed, or that it is again."""
        ...


class SigningLedger(Protocol):
    """What signing needs of the ledger. Every method may raise LedgerUnavailable."""

    def turn(self, tenant: str) -> AbstractAsyncContextManager[SigningTurn | None]:
        """A turn at signing; None where somebody else has it."""
        ...

    async def add_partitions(self, months: int) -> None:
        """Make partitions for the months to come, where they are missing."""
        ...


class LogSigner:
    """Signs the logs of tenants, look by look."""

    def __init__(
        self,
        ledger: SigningLedger,
        signer: Signer,
        place: Place,
        *,
        tenants: Callable[[], Iterable[str]],
        origin_of: Callable[[str], str],
        report: Callable[[Exception], None],
        alarm: Callable[[str, str | None], None],
    ) -> None:
        self._ledger = ledger
        self._signer = signer
        self._place = place
        self._tenants = tenants
        self._origin_of = origin_of
        self._report = report
        self._alarm = alarm
        self._alarms: dict[str, str] = {}
        self._partitions_at = 0.0

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look again and again, until cancelled."""
        while True:
            began, is_behind = time.process_time(), False
            try:
                await self._add_partitions()
                for tenant in tuple(self._tenants()):
                    is_behind = await self.look(tenant) or is_behind
            except GatewayFault as fault:
                self._report(fault)
            except Exception as error:  # noqa: BLE001 - a defect must not end signing for ever; it is told each time
                self._report(error)
            # With a backlog, two thirds of this process's time stay with the calls.
            await sleep(2 * (time.process_time() - began) + 0.01 if is_behind else LOOK_EVERY_S * random.uniform(0.8, 1.0))  # noqa: S311

    async def look(self, tenant: str) -> bool:
        """Sign what is new; True where there is more. A log that must not be signed becomes an alarm."""
        async with self._ledger.turn(tenant) as turn:
            if turn is None:
                return False
            kept = await turn.kept()
            try:
                is_behind = await self._sign(tenant, turn, kept)
            except (LogRefused, PlaceUnavailable) as refused:
                if kept is None or kept.alarm != str(refused):
                    await turn.tell(str(refused))
                self._sound(tenant, str(refused))
                return False
            if kept is not None and kept.alarm is not None:
                await turn.tell(None)
            self._sound(tenant, None)
            return is_behind

    async def _sign(self, tenant: str, turn: SigningTurn, kept: KeptTree | None) -> bool:
        origin = self._origin_of(tenant)
        last_note = await self._place.last(origin)
        size = await turn.log_size()
        last = _open(self._signer.public_key(origin), last_note) if last_note is not None else None
        tree = _restore(kept)
        if last is None and tree.size:
            raise LogRefused(f"the last note is gone: a checkpoint of {tree.size} records was published and is not there any more")
        if last is not None and last.size < tree.size:
            raise LogRefused(f"the last note covers {last.size} records, but one of {tree.size} was published: notes were taken back")
        if size < (last.size if last else 0):
            raise LogRefused(f"the log has {size} records, its last note covers {last.size if last else 0}: records were lost")
        if last is not None and last.size == tree.size and last.root != tree.root():
            raise LogRefused(f"the log forked: its last note of {last.size} records has another root")
        await _look_back(turn, tree.size)
        if size == tree.size:
            return False
        # A signer died after it had published: what is stored must lead to its note before anything else is signed.
        is_late = last is not None and last.size > tree.size
        target = last.size if last is not None and is_late else min(size, tree.size + MAX_RECORDS)
        nodes = await _grow(turn, tree, target)
        if last is not None and last_note is not None and is_late:
            if tree.root() != last.root:
                raise LogRefused(f"the log forked: its last note of {last.size} records has another root")
            note = last_note
        else:
            note = self._signer.sign(Checkpoint(origin=origin, size=tree.size, root=tree.root()))
            await self._place.append(origin, note, size=tree.size, after=last_note)
        await turn.keep(tree, nodes, note)
        return tree.size < size

    async def _add_partitions(self) -> None:
        if time.monotonic() >= self._partitions_at:
            await self._ledger.add_partitions(MONTHS_AHEAD)
            self._partitions_at = time.monotonic() + PARTITIONS_EVERY_S

    def _sound(self, tenant: str, alarm: str | None) -> None:
        if self._alarms.get(tenant) != alarm:
            self._alarm(tenant, alarm)
        if alarm is None:
            self._alarms.pop(tenant, None)
        else:
            self._alarms[tenant] = alarm


def _open(key: PublicKey, note: str) -> Checkpoint:
    try:
        return key.open(note)
    except NoteRefused:
        raise LogRefused("the last note is not signed by this log's key: somebody else wrote it") from None


def _restore(kept: KeptTree | None) -> Tree:
    try:
        return Tree.from_bytes(kept.size, kept.peaks) if kept is not None else Tree()
    except ValueError:
        raise LogRefused("the kept tree does not fit its size: it was changed") from None


async def _grow(turn: SigningTurn, tree: Tree, target: int) -> list[tuple[Node, bytes]]:
    """Add what is stored up to `target`, hashed anew from its bytes."""
    first = tree.size
    records = await turn.records(first, target - first)
    return list(tree.push(_leaf_of(record, first + offset) for offset, record in enumerate(_all(records, first, target))))


async def _look_back(turn: SigningTurn, size: int) -> None:
    """Hash one old block anew, picked by chance: what was changed behind the signer's back comes out sooner or later."""
    if size < BLOCK:
        return
    number = random.randrange(size // BLOCK)  # noqa: S311 - which block is no secret
    first = number * BLOCK
    records = await turn.records(first, BLOCK)
    if not records or records[0].position >= first + BLOCK:
        return  # pruned
    if records[-1].position >= first + BLOCK:
        return  # pruned in part
    leaves = [_leaf_of(record, first + offset) for offset, record in enumerate(_all(records, first, first + BLOCK))]
    if fold_level(leaves) != await turn.node((STORED_EVERY, number)):
        raise LogRefused(f"records from position {first} to {first + BLOCK - 1} are not those that were signed")


def _all(records: Sequence[StoredRecord], first: int, behind: int) -> Sequence[StoredRecord]:
    for offset in range(behind - first):
        if offset >= len(records) or records[offset].position != first + offset:
            raise LogRefused(f"there is no record at position {first + offset}")
    return records


def _leaf_of(record: StoredRecord, position: int) -> bytes:
    leaf = leaf_hash(record.body)
    if leaf != record.leaf:
        raise LogRefused(f"the record at position {position} was changed: it does not fit its hash")
    return leaf
