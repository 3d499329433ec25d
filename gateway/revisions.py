"""What is in force in this gateway: it follows the ledger, where activations and controls are committed.

Every gateway of a database asks for the epochs twice a second, and at once where an admission finds its call decided under
an old one. A revision that cannot run here is never replaced by an older one silently: calls are refused as stale, and the
gateway is not ready.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

import structlog

from gateway.bundle import CheckedBundle, Report, load_files
from gateway.bundle.archive import pack_files, unpack_files
from gateway.domain.catalogue import Bundle
from gateway.domain.decision import GatewayFault, PolicyFault
from gateway.domain.drafts import activation_draft, control_draft
from gateway.domain.in_force import InForce, RestrictionKind
from gateway.domain.ports import ControlRow, PolicyEngine, Pushed, RevisionStore
from gateway.domain.reasons import ReasonCode

LOG = structlog.get_logger("gateway.revisions")

EVERY_S = 0.5
"""How often the epochs are looked at."""
RETRY_S = 5.0
"""How long a revision that cannot run here is left alone before it is tried again."""
KEPT_BUNDLES = 16
"""Revisions that stay loaded for calls that have to be resolved with their tools."""

CheckFiles = Callable[[Mapping[str, bytes]], Awaitable[Report]]
CheckHere = Callable[[Bundle, str], list[str]]
"""Why tools of a bundle cannot run on this gateway for a tenant; empty where all can."""


class RevisionRefused(Exception):
    """A revision did not pass: `report` where its files or tests did not, `problems` where it cannot run on this gateway."""

    def __init__(self, report: Report | None = None, problems: list[str] | None = None) -> None:
        super().__init__()
        self.report = report
        self.problems = problems or []


class OtherRevisionActive(Exception):
    """Another revision is in force than the one to be replaced."""

    def __init__(self, revision: str) -> None:
        super().__init__(revision)
        self.revision = revision


class Revisions:
    """The revisions of all tenants, as this gateway has them in force."""

    def __init__(
        self,
        store: RevisionStore,
        engine: PolicyEngine,
        *,
        check_files: CheckFiles,
        check_here: CheckHere,
        new_id: Callable[[], UUID],
        report: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._check_files = check_files
        self._check_here = check_here
        self._new_id = new_id
        self._report = report
        self._in_force: dict[str, InForce] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        """Tenants whose newest revision cannot run here: its epoch, and when it was tried (loop time)."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._loaded: OrderedDict[tuple[str, str], Bundle] = OrderedDict()

    @property
    def is_current(self) -> bool:
        """Whether every tenant's newest revision runs here."""
        return not self._failed

    @property
    def tenants(self) -> list[str]:
        """Tenants that have a revision in force."""
        return list(self._in_force)

    def current(self, tenant: str) -> InForce | None:
        """What is in force for a tenant, as far as this gateway knows."""
        return self._in_force.get(tenant)

    async def catch_up(self, tenant: str) -> InForce | None:
        """What is in force for a tenant by the ledger, loaded here; None where there is nothing, or it cannot run here."""
        async with self._locks[tenant]:
            known = self._in_force.get(tenant)
            row = await self._store.read_in_force(tenant, known_epoch=known.epoch if known else None)
            if row is None:
                return None
            if known is not None and known.epoch >= row.epoch:
                return known
            return await self._put_in_force(tenant, row)

    async def newest(self, tenant: str) -> str | None:
        """The revision in force by the ledger, whether it runs here or not; None where there is none."""
        known = self._in_force.get(tenant)
        row = await self._store.read_in_force(tenant, known_epoch=known.epoch if known else None)
        return row.revision if row else None

    async def follow(self) -> None:
        """Follow the ledger until cancelled. A fault is reported and does not end it."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
            except Exception as fault:  # noqa: BLE001 - the next look goes on
                self._report(fault)

    async def look(self) -> None:
        """Catch up with every tenant whose epoch is new."""
        now = asyncio.get_running_loop().time()
        for tenant, epoch in (await self._store.read_epochs()).items():
            known = self._in_force.get(tenant)
            failed_epoch, tried_at = self._failed.get(tenant, (-1, 0.0))
            if (known is None or known.epoch < epoch) and (failed_epoch != epoch or now - tried_at > RETRY_S):
                await self.catch_up(tenant)

    async def bundle_of(self, tenant: str, revision: str) -> Bundle | None:
        """The bundle of a kept revision, or None where it is not kept or does not load any more."""
        known = self._in_force.get(tenant)
        if known is not None and known.bundle.revision == revision:
            return known.bundle
        place = (tenant, revision)
        if place not in self._loaded:
            packed = await self._store.load(tenant, revision)
            bundle = await _unpack(packed) if packed else None
            if bundle is None:
                return None
            self._remember(place, bundle)
        self._loaded.move_to_end(place)
        return self._loaded[place]

    async def check(self, tenant: str, files: Mapping[str, bytes]) -> CheckedBundle:
        """Everything that a revision must pass to be in force on this gateway. Raises RevisionRefused."""
        report = await self._check_files(files)
        if report.checked is None or not report.is_good:
            raise RevisionRefused(report)
        self.check_here(tenant, report.checked.bundle)
        return report.checked

    def check_here(self, tenant: str, bundle: Bundle) -> None:
        """Whether every tool of a bundle can run on this gateway. Raises RevisionRefused."""
        if problems := self._check_here(bundle, tenant):
            raise RevisionRefused(problems=problems)

    async def push(self, tenant: str, files: Mapping[str, bytes], *, by: str, note: str) -> CheckedBundle:
        """Check a revision and keep it, without putting it in force. Raises RevisionRefused, LedgerUnavailable."""
        checked = await self.check(tenant, files)
        await self._store.push(tenant, _pushed(checked, by, note))
        return checked

    async def activate(self, tenant: str, checked: CheckedBundle, *, by: str, note: str = "", replaces: str | None) -> InForce:
        """Put a checked revision in force on every gateway of the database, in place of `replaces` only.

        Raises OtherRevisionActive, PolicyFault where the engine cannot load it, LedgerUnavailable.
        """
        # Loaded before it is in force: what the engine refuses never gets that far.
        await self._engine.activate(checked.bundle.policy)
        pushed = _pushed(checked, by, note)
        draft = activation_draft(self._new_id(), tenant, pushed.revision, by, replaces)
        found = await self._store.activate(tenant, pushed, draft, replaces=replaces)
        if isinstance(found, str):
            raise OtherRevisionActive(found)
        in_force = await self.catch_up(tenant)
        if in_force is None:
            raise PolicyFault(ReasonCode.POLICY_STALE, "the revision is in force and cannot run on this gateway")
        return in_force

    async def restrict(self, tenant: str, kind: RestrictionKind, name: str, *, reason: str, by: str) -> bool | None:
        """Take an agent, a tool or the tenant out of service at once. False where it was already; None for an unknown tenant."""
        draft = control_draft(self._new_id(), tenant, kind, name, is_restricted=True, by=by, reason=reason)
        found = await self._store.restrict(tenant, kind, name, reason=reason, by=by, record=draft)
        await self.catch_up(tenant)
        return found

    async def release(self, tenant: str, kind: RestrictionKind, name: str, *, reason: str, by: str) -> bool | None:
        """Put it back into service. False where it was in service; None for an unknown tenant."""
        draft = control_draft(self._new_id(), tenant, kind, name, is_restricted=False, by=by, reason=reason)
        found = await self._store.release(tenant, kind, name, draft)
        await self.catch_up(tenant)
        return found

    async def _put_in_force(self, tenant: str, row: ControlRow) -> InForce | None:
        known = self._in_force.get(tenant)
        bundle = known.bundle if known is not None and known.bundle.revision == row.revision else await self._load(tenant, row)
        if bundle is None:
            self._failed[tenant] = (row.epoch, asyncio.get_running_loop().time())
            return None
        in_force = InForce(bundle=bundle, epoch=row.epoch, digest_key=row.digest_key, controls=row.controls)
        self._in_force[tenant] = in_force
        self._failed.pop(tenant, None)
        if known is not None and known.bundle is not bundle:
            self._remember((tenant, known.bundle.revision), known.bundle)
            await self._engine.retain({each.bundle.revision for each in self._in_force.values()})
            LOG.info("revision_in_force", tenant=tenant, revision=row.revision, epoch=row.epoch)
        return in_force

    async def _load(self, tenant: str, row: ControlRow) -> Bundle | None:
        """The bundle of a control row, ready to decide; None where it cannot run here."""
        try:
            bundle = self._loaded.get((tenant, row.revision)) or (await _unpack(row.files) if row.files else None)
            problems = (
                self._check_here(bundle, tenant) if bundle is not None else ["its files are not kept, or do not load with this release"]
            )
            if bundle is not None and not problems:
                await self._engine.activate(bundle.policy)
                return bundle
        except GatewayFault as fault:
            problems = [f"{fault.reason_code}: {fault.detail}"]
        LOG.error("revision_cannot_run_here", tenant=tenant, revision=row.revision, problems=problems[:5])
        return None

    def _remember(self, place: tuple[str, str], bundle: Bundle) -> None:
        self._loaded[place] = bundle
        self._loaded.move_to_end(place)
        while len(self._loaded) > KEPT_BUNDLES:
            self._loaded.popitem(last=False)


def _pushed(checked: CheckedBundle, by: str, note: str) -> Pushed:
    bundle = checked.bundle
    return Pushed(revision=bundle.revision, files=pack_files(checked.files), name=bundle.name, by=by, note=note)


async def _unpack(packed: bytes) -> Bundle | None:
    loaded = await asyncio.to_thread(lambda: load_files(unpack_files(packed)))
    return loaded.bundle if isinstance(loaded, CheckedBundle) else None
